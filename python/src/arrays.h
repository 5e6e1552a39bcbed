// NumPy's arrays as those of onestep, and back.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "buffer_protocol.h"
#include "common.h"

namespace onestep::python {

/// The memory of a NumPy array of doubles, for as long as this object lives. Not an array of doubles: converted first.
/// Throws Python's TypeError for what has no real numbers, MisuseError for more than two axes.
class Buffer {
 public:
  explicit Buffer(nb::handle array);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();

  const Shape& shape() const { return shape_; }
  /// The entries where they lie. The array must not outlive this object.
  Array view() const;
  /// The entries, copied.
  Array copy() const;
  bool is_contiguous() const { return view().is_contiguous(); }
  const double* data() const { return static_cast<const double*>(view_.buf); }
  /// Columns one after another, as those of the transpose of a NumPy array lie.
  bool is_transposed() const;

 private:
  void open(nb::handle array);
  Py_buffer view_{};
  Shape shape_;
};

/// For messages.
std::string name_of_type(nb::handle object);

/// Whether this is a number of Python, which NumPy need not look at.
bool is_number(nb::handle object);
double number_of(nb::handle object);

/// An array of its own, from anything NumPy reads as one.
Array array_of(nb::handle object);
/// A tuple lists parts; anything else is a single one.
Parts parts_of(nb::handle object);
/// The entries where they lie if they are contiguous doubles, for the time of a call.
class PartsInPlace {
 public:
  explicit PartsInPlace(nb::handle object);
  const Parts& parts() const { return parts_; }

 private:
  std::vector<Buffer> buffers_;
  Parts parts_;
};

/// NumPy's array of its own memory.
nb::object numpy_of(const Array& array);
nb::object numpy_of(std::span<const double> vector);
/// Arrays of one shape along a new first axis.
nb::object numpy_stack(std::span<const Array> arrays);
nb::tuple numpy_tuple(const Parts& parts);
/// One array where there is one, else a tuple of them.
nb::object numpy_parts(const Parts& parts);
/// New memory of NumPy, and where it is.
nb::object numpy_empty(std::span<const std::int64_t> dims, std::span<double>* memory);

}  // namespace onestep::python
