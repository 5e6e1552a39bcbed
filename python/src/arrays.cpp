// NumPy's arrays as those of onestep, and back, by the buffer protocol.
#include "arrays.h"

#include <algorithm>

#include "errors.h"

namespace onestep::python {
namespace {

// Of the module numpy, looked up when this one is imported and never given back.
struct {
  nb::handle asarray, empty, ndarray, matrix, float64;
} numpy;

bool is_sparse(nb::handle object) {
  const nb::object module = nb::getattr(object.type(), "__module__", nb::none());
  return nb::isinstance<nb::str>(module) && nb::cast<std::string>(module).starts_with("scipy.sparse");
}

// As doubles in the order of their rows. What cannot become real numbers is refused by name.
nb::object converted(nb::handle object) {
  if (is_sparse(object))
    throw TracingError("SciPy's sparse matrices are not supported by this version: use " + name_of_type(object) +
                       ".toarray()");
  if (nb::hasattr(object, "mask") && nb::isinstance(object, nb::handle(numpy.ndarray)))
    throw TracingError("masked arrays are not supported: use .filled(value) or weights of 0 and 1");
  if (!numpy.matrix.is_none() && nb::isinstance(object, numpy.matrix))
    throw TracingError(
        "np.matrix is not supported, whose * is a product of matrices: use np.asarray(M), and @ for products");
  const nb::object array = numpy.asarray(object);
  const std::string kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind.find_first_of("biuf") == std::string::npos)
    throw TracingError("an array of real numbers is needed, not one of dtype " +
                       nb::cast<std::string>(array.attr("dtype").attr("name")) + " (from " + name_of_type(object) + ")");
  return numpy.asarray(array, "dtype"_a = numpy.float64, "order"_a = "C");
}

bool is_double(const Py_buffer& view) {
  return view.format != nullptr && view.format[0] == 'd' && view.format[1] == '\0' && view.itemsize == sizeof(double);
}

bool has_whole_strides(const Py_buffer& view) {
  for (int axis = 0; axis < view.ndim; ++axis)
    if (view.strides[axis] % static_cast<Py_ssize_t>(sizeof(double)) != 0) return false;
  return reinterpret_cast<std::uintptr_t>(view.buf) % alignof(double) == 0;
}

Shape shape_of(const Py_buffer& view) {
  if (view.ndim == 0) return {};
  if (view.ndim == 1) return {view.shape[0]};
  if (view.ndim == 2) return {view.shape[0], view.shape[1]};
  throw MisuseError("an array has at most two axes here, this one has " + std::to_string(view.ndim) +
                    "; many problems at once are onestep.solve_many");
}

}  // namespace

Buffer::Buffer(nb::handle array) {
  if (array.type().is(numpy.ndarray) && PyObject_GetBuffer(array.ptr(), &view_, PyBUF_FORMAT | PyBUF_STRIDES) == 0) {
    if (is_double(view_) && has_whole_strides(view_)) {
      try {
        shape_ = shape_of(view_);
      } catch (...) {
        PyBuffer_Release(&view_);
        throw;
      }
      return;
    }
    PyBuffer_Release(&view_);
  }
  PyErr_Clear();  // dtypes that have no buffer, as dates, are refused below
  open(converted(array));
}

void Buffer::open(nb::handle array) {
  if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_FORMAT | PyBUF_STRIDES) != 0) throw nb::python_error();
  try {
    shape_ = shape_of(view_);
  } catch (...) {
    PyBuffer_Release(&view_);
    throw;
  }
}

Buffer::Buffer(Buffer&& other) noexcept : view_(other.view_), shape_(other.shape_) { other.view_.obj = nullptr; }

Buffer::~Buffer() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

Array Buffer::view() const {
  const auto stride = [&](int axis) { return view_.strides[axis] / static_cast<Py_ssize_t>(sizeof(double)); };
  if (shape_.rank() == 2) return Array::view(MatrixView{data(), shape_[0], shape_[1], stride(0), stride(1)});
  if (shape_.rank() == 0) return Array(*data());
  if (shape_[0] < 2 || stride(0) == 1) return Array::view(std::span(data(), static_cast<std::size_t>(shape_[0])));
  std::vector<double> entries(static_cast<std::size_t>(shape_[0]));
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = data()[static_cast<Py_ssize_t>(i) * stride(0)];
  return entries;
}

Array Buffer::copy() const {
  const Array here = view();
  std::vector<double> entries(static_cast<std::size_t>(here.size()));
  here.copy_to(entries);
  return {shape_, std::move(entries)};
}

bool Buffer::is_transposed() const { return shape_.rank() == 2 && !is_contiguous() && view().transposed().is_contiguous(); }

std::string name_of_type(nb::handle object) { return nb::cast<std::string>(object.type().attr("__name__")); }

bool is_number(nb::handle object) { return PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr()); }

double number_of(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

Array array_of(nb::handle object) {
  if (is_number(object)) return number_of(object);
  return Buffer(object).copy();
}

Parts parts_of(nb::handle object) {
  if (!nb::isinstance<nb::tuple>(object)) return array_of(object);
  std::vector<Array> parts;
  for (const nb::handle part : nb::borrow<nb::tuple>(object)) parts.push_back(array_of(part));
  return parts;
}

PartsInPlace::PartsInPlace(nb::handle object) {
  std::vector<Array> parts;
  const auto add = [&](nb::handle part) {
    if (is_number(part)) {
      parts.emplace_back(number_of(part));
    } else {
      buffers_.emplace_back(part);
      parts.push_back(buffers_.back().view());
    }
  };
  if (nb::isinstance<nb::tuple>(object)) {
    for (const nb::handle part : nb::borrow<nb::tuple>(object)) add(part);
  } else {
    add(object);
  }
  parts_ = std::move(parts);
}

nb::object numpy_empty(std::span<const std::int64_t> dims, std::span<double>* memory) {
  nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(dims.size())));
  std::size_t size = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    PyTuple_SetItem(shape.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(dims[i]));
    size *= static_cast<std::size_t>(dims[i]);
  }
  nb::object made = numpy.empty(shape);
  Py_buffer view;
  if (PyObject_GetBuffer(made.ptr(), &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
  *memory = {static_cast<double*>(view.buf), size};
  PyBuffer_Release(&view);  // `made` owns the memory and has not been seen by anyone else
  return made;
}

nb::object numpy_of(const Array& array) {
  const std::int64_t dims[] = {array.shape()[0], array.shape()[1]};
  std::span<double> memory;
  nb::object made = numpy_empty(std::span(dims).first(static_cast<std::size_t>(array.shape().rank())), &memory);
  array.copy_to(memory);
  return made;
}

nb::object numpy_of(std::span<const double> vector) {
  const std::int64_t dims[] = {static_cast<std::int64_t>(vector.size())};
  std::span<double> memory;
  nb::object made = numpy_empty(dims, &memory);
  std::ranges::copy(vector, memory.begin());
  return made;
}

nb::object numpy_stack(std::span<const Array> arrays) {
  const Shape each = arrays.empty() ? Shape{} : arrays.front().shape();
  const std::int64_t dims[] = {static_cast<std::int64_t>(arrays.size()), each[0], each[1]};
  std::span<double> memory;
  nb::object made = numpy_empty(std::span(dims).first(static_cast<std::size_t>(1 + each.rank())), &memory);
  for (const Array& a : arrays) {
    a.copy_to(memory.first(static_cast<std::size_t>(a.size())));
    memory = memory.subspan(static_cast<std::size_t>(a.size()));
  }
  return made;
}

nb::tuple numpy_tuple(const Parts& parts) {
  nb::list all;
  for (const Array& a : parts) all.append(numpy_of(a));
  return nb::tuple(all);
}

nb::object numpy_parts(const Parts& parts) {
  if (parts.size() == 1) return numpy_of(parts[0]);
  return numpy_tuple(parts);
}

void bind_arrays(nb::module_&) {
  const nb::module_ np = nb::module_::import_("numpy");
  numpy.asarray = nb::object(np.attr("asarray")).release();
  numpy.empty = nb::object(np.attr("empty")).release();
  numpy.ndarray = nb::object(np.attr("ndarray")).release();
  numpy.matrix = nb::object(nb::getattr(np, "matrix", nb::none())).release();
  numpy.float64 = nb::object(np.attr("float64")).release();
}

}  // namespace onestep::python
