// The data of the suite `jobs`: real sets where their files are, else made ones of the same shape, and the name says which.
// bench/peer/samples.py has the same, bit for bit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "data.h"
#include "onestep/array.h"

namespace onestep::bench {

// A view of numbers kept elsewhere.
Array matrix(const std::vector<double>& values, std::size_t rows, std::size_t columns);

// Samples with a column of ones behind their features.
struct Samples {
  std::size_t N, n;       // n counts that column
  std::vector<double> A;  // N x n, row-major
  std::vector<double> y;  // +1 or -1; of classes, their number

  Array features() const { return matrix(A, N, n); }
  Array labels() const { return Array::view(y); }
};

struct TrainAndValid {
  Samples train, valid;
};

// "a9a", "ijcnn1", "made" or "Fashion-MNIST", with "made as" before it where its files are not there.
std::string name_of(const std::string& which);

// LIBSVM's a9a, judged by a9a.t: 32561 and 16281 samples, 123 features.
TrainAndValid a9a_samples();

// a9a (32561, 123), ijcnn1 (49990, 22) or made (10000, 100), by name.
Samples samples_called(const std::string& which);

// 5000 + 5000 images of 784 pixels in [0, 1] and ten classes; of the training labels three in ten are made wrong. The images
// are those of Fashion-MNIST's test file, which is quickly read.
TrainAndValid image_samples();
inline constexpr std::size_t image_classes = 10;

// A 1 in the column of each sample's class.
std::vector<double> one_hot(const std::vector<double>& classes);

// The problem of the floors on these samples, with a penalty l2/2 x² of its own for each coefficient.
Logistic logistic_on(const Samples& samples, std::vector<double> l2);

}  // namespace onestep::bench
