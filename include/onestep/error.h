// What the library throws. Numerical trouble of a solve is a Status; exceptions are for misuse, for files, and for
// derivatives that are asked for where there are none. Programs decide by type and fields, never by the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "onestep/export.h"
#include "onestep/status.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// Everything the library throws. The message names the operation, the values and the way out:
/// `[matmul] inner dimensions differ: (8192, 12) and (13)`.
///
///     try { matmul(A, x); } catch (const Error& e) { std::cerr << e.what() << '\n'; }
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Misuse: shapes that do not fit, an input that is not bound, an option out of range, a derivative the step does not have.
///
///     try { matmul(A, x); } catch (const MisuseError& e) { std::cerr << e.what() << '\n'; }
class MisuseError : public Error {
 public:
  using Error::Error;
};

/// A derivative was asked of a solve that did not end at a solution; Solution::even_if_unconverged permits it.
///
///     try { s.vjp(c); } catch (const NotConvergedError& e) { std::cerr << to_string(e.status) << '\n'; }
class NotConvergedError : public Error {
 public:
  NotConvergedError(const std::string& message, Status its_status, int its_iterations)
      : Error(message), status(its_status), iterations(its_iterations) {}
  Status status;   ///< how the solve ended
  int iterations;  ///< that it made
};

/// The solution has no derivative, or none that could be computed: the linear system is singular, Newton's method converged
/// only linearly, the step does not contract. Solution::even_if_unconverged returns what was computed all the same.
///
///     try { s.vjp(c); } catch (const NoDerivativeError& e) { std::cerr << e.reason << '\n'; }
class NoDerivativeError : public Error {
 public:
  NoDerivativeError(const std::string& message, std::string its_reason, Status its_status,
                    double its_residual = std::numeric_limits<double>::quiet_NaN())
      : Error(message), reason(std::move(its_reason)), status(its_status), residual(its_residual) {}
  std::string reason;  ///< in words, without the operation
  Status status;       ///< of the linear solve: singular, iteration_limit, not_finite; diverged: the step does not contract
  double residual;     ///< relative, that the linear solve reached; NaN where there was none
};

/// A file that cannot be read, or what is wrong in it.
///
///     try { read_csv("a.csv"); } catch (const FileError& e) { std::cerr << e.file << ':' << e.line << '\n'; }
class FileError : public Error {
 public:
  /// The option of the reader that would help, for programs whose users know it by another name.
  enum class Remedy : std::uint8_t {
    none,            ///< no option: the file has to be changed
    memory_limit,    ///< a larger one
    drop,            ///< of the column
    target,          ///< another column
    drop_or_target,  ///< either of these
    header,          ///< whether there is one
    no_header,       ///< that there is none
    separator,       ///< of the fields
    decimal,         ///< that decimals have a comma
    missing_target,  ///< samples without one are left out
    missing_value,   ///< samples without one are left out, or values are imputed
    missing_text,    ///< the same, where a text that is no number means a missing value and is emptied first
  };

  FileError(const std::string& message, std::string its_file, std::size_t its_line = 0, std::size_t its_field = 0,
            std::string its_problem = {}, Remedy its_remedy = Remedy::none)
      : Error(message),
        file(std::move(its_file)),
        line(its_line),
        field(its_field),
        problem(std::move(its_problem)),
        remedy(its_remedy) {}
  std::string file;     ///< as it was named
  std::size_t line;     ///< counted from 1; 0: the whole file
  std::size_t field;    ///< within the line, counted from 1; 0: the whole line
  std::string problem;  ///< where and what, without the reader and its options; empty where there is no more than what()
  Remedy remedy;        ///< what would help
};

/// A file could not be written while a job was running: no room, no permission any more. What was there before is kept.
///
///     const auto tell = [](const WriteError& e) { std::cerr << e.file << " is not up to date\n"; };
class WriteError : public FileError {
 public:
  using FileError::FileError;
};

namespace detail {
/// Throws MisuseError: an object of this class was used after it was moved from.
[[noreturn]] void fail_moved_from(const char* what);
/// Throws MisuseError: an unsigned index is larger than any array.
[[noreturn]] void fail_index(std::uint64_t index);
}  // namespace detail

}  // namespace onestep
ONESTEP_EXPORT_END
