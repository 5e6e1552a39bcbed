// onestep_peer: ours among the contenders of `./run bench peers`, by the public headers alone, and the data all of them
// read.
//
//     onestep_peer data FOLDER PROBLEM SIZE…           writes the problem as .npy files
//     onestep_peer turns FOLDER METHOD PROBLEM SIZE…   writes x and the gradient, then measures once for each line it reads
//
// PROBLEM SIZE is logistic N n, or qp n m p; METHOD is one-step, implicit or unrolled.
#include <fmt/core.h>
#include <onestep/onestep.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "data.h"

namespace onestep::bench {
namespace {

using std::filesystem::path;

// In NumPy's format, version 1.0; x86 and ARM write numbers as it says here.
void write_array(const path& file, const Shape& shape, std::span<const double> entries) {
  std::string sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) sizes += fmt::format("{},", shape[axis]);
  std::string header = fmt::format("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}), }}", sizes);
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::ofstream out(file, std::ios::binary);
  out << "\x93NUMPY" << '\x01' << '\x00' << static_cast<char>(header.size() & 0xFFU)
      << static_cast<char>(header.size() >> 8U) << header;
  out.write(reinterpret_cast<const char*>(entries.data()), static_cast<std::streamsize>(entries.size_bytes()));
  if (!out.flush()) throw std::runtime_error(fmt::format("{} could not be written", file.string()));
}

void write_array(const path& file, const Array& array) {
  const Array entries = array.contiguous();
  write_array(file, entries.shape(), entries.values());
}

Array matrix(const std::vector<double>& entries, std::size_t rows, std::size_t columns) {
  return {Shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}, entries};
}
Array vector(const std::vector<double>& entries) { return {Shape{static_cast<std::int64_t>(entries.size())}, entries}; }

// ---- the contenders ----

// What is timed: the solve, and the solve with the gradient of |x|²/2.
struct Contender {
  std::function<Array()> solve;
  std::function<Parts()> gradient;
};

Contender logistic(std::size_t rows, std::size_t columns, const Estimator& estimator) {
  const Logistic data = logistic_with_intercept(rows, columns);
  const Array A = matrix(data.A, rows, columns), y = vector(data.y), w = vector(data.w);
  // user: begin logistic: onestep
  const auto n = A.shape()[1];
  const Solver newtons = newton([A, y, n](Expr x, Expr weights) {
    return sum(weights * softplus(-y * matmul(A, x))) + 0.1 * sum(square(slice(x, 1, n)));
  });
  const auto fit = std::make_shared<Prepared>(newtons, zeros(n), w, estimator);
  return {[=] { return fit->solve(w).x(); },
          [=] {
            const Solution& s = fit->solve(w);
            return s.vjp(s.x());
          }};
  // user: end
}

Contender program(std::size_t n, std::size_t m, std::size_t p, const Estimator& estimator) {
  const DenseQp data = qp_data(n, m, p);
  const Array Q = matrix(data.Q, n, n), q = vector(data.q), A = matrix(data.A, m, n), b = vector(data.b),
              G = matrix(data.G, p, n), h = vector(data.h);
  // user: begin qp: onestep
  const Parts theta = parts_of({.Q = Q, .q = q, .A = A, .b = b, .G = G, .u = h});
  const auto program = std::make_shared<Prepared>(quadratic_program(), theta, estimator);
  return {[=] { return program->solve(theta).x(); },
          [=] {
            const Solution& s = program->solve(theta);
            return s.vjp(s.x());
          }};
  // user: end
}

// ---- turns ----

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The median time of a call, by calls for about this long; several calls make a sample where one is short for the clock.
template <class F> double median_seconds(const F& call, double for_seconds) {
  const double once = now();
  call();
  const int calls = static_cast<int>(std::clamp(std::ceil(3e-4 / std::max(now() - once, 1e-9)), 1.0, 10000.0));
  std::vector<double> samples;
  const double begin = now();
  while (samples.empty() || (now() - begin < for_seconds && samples.size() < 501)) {
    const double sample = now();
    for (int i = 0; i < calls; ++i) call();
    samples.push_back((now() - sample) / calls);
  }
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

struct Request {
  std::string problem;
  std::vector<std::size_t> size;
};

Contender make(const Request& request, const Estimator& estimator) {
  const auto& size = request.size;
  return request.problem == "logistic" ? logistic(size[0], size[1], estimator)
                                       : program(size[0], size[1], size[2], estimator);
}

Estimator estimator_of(const std::string& method) {
  if (method == "one-step") return OneStep{};
  if (method == "implicit") return Implicit{};
  if (method == "unrolled") return Unrolled{};
  throw std::invalid_argument(fmt::format("no method {}: there are one-step, implicit and unrolled", method));
}

void take_turns(const path& folder, const Request& request, const Estimator& estimator) {
  const double first = now();
  const Contender contender = make(request, estimator);
  Parts gradient = contender.gradient();
  const double until_first = now() - first;
  // Of a program's nine parts the lower sides and the bounds are not there.
  if (gradient.size() == 9) gradient = {gradient[0], gradient[1], gradient[2], gradient[3], gradient[4], gradient[6]};
  for (std::size_t i = 0; i < gradient.size(); ++i) write_array(folder / fmt::format("gradient{}.npy", i), gradient[i]);
  write_array(folder / "x.npy", contender.solve());
  std::cout << "ready " << until_first << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const double with = median_seconds(contender.gradient, 0.2), without = median_seconds(contender.solve, 0.1);
    std::cout << fmt::format("{:.9e} {:.9e}", without, with) << std::endl;
  }
}

void write_data(const path& folder, const Request& request) {
  const auto& size = request.size;
  if (request.problem == "logistic") {
    const Logistic data = logistic_with_intercept(size[0], size[1]);
    write_array(folder / "A.npy", matrix(data.A, data.N, data.n));
    write_array(folder / "y.npy", vector(data.y));
    write_array(folder / "w.npy", vector(data.w));
    return;
  }
  const DenseQp data = qp_data(size[0], size[1], size[2]);
  write_array(folder / "Q.npy", matrix(data.Q, data.n, data.n));
  write_array(folder / "q.npy", vector(data.q));
  write_array(folder / "A.npy", matrix(data.A, data.m, data.n));
  write_array(folder / "b.npy", vector(data.b));
  write_array(folder / "G.npy", matrix(data.G, data.p, data.n));
  write_array(folder / "h.npy", vector(data.h));
}

Request request_of(std::span<char*> words) {
  Request request{words.empty() ? "" : words[0], {}};
  for (std::size_t i = 1; i < words.size(); ++i) request.size.push_back(std::stoul(words[i]));
  if (!(request.problem == "logistic" && request.size.size() == 2) && !(request.problem == "qp" && request.size.size() == 3))
    throw std::invalid_argument("the problem is logistic N n, or qp n m p");
  return request;
}

void run(std::span<char*> words) {
  const std::string verb = words.size() < 4 ? "" : words[1];
  if (verb == "data") return write_data(words[2], request_of(words.subspan(3)));
  if (verb == "turns") return take_turns(words[2], request_of(words.subspan(4)), estimator_of(words[3]));
  throw std::invalid_argument("usage: onestep_peer data FOLDER PROBLEM SIZE… or turns FOLDER METHOD PROBLEM SIZE…");
}

}  // namespace
}  // namespace onestep::bench

int main(int argc, char** argv) {
  try {
    onestep::bench::run({argv, static_cast<std::size_t>(argc)});
  } catch (const std::invalid_argument& problem) {
    fmt::print(stderr, "onestep_peer: {}\n", problem.what());
    return 2;
  } catch (const std::exception& problem) {
    fmt::print(stderr, "onestep_peer: {}\n", problem.what());
    return 1;
  }
  return 0;
}
