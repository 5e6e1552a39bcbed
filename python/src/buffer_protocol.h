// The buffer protocol, for a module that is built once for all versions of Python. It belongs to the stable ABI since 3.11;
// in 3.10 there are the same functions with the same struct, which the headers then do not declare.
#pragma once

#include <Python.h>

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030B0000
extern "C" {
struct Py_buffer {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};
int PyObject_GetBuffer(PyObject* exporter, Py_buffer* view, int flags);
void PyBuffer_Release(Py_buffer* view);
}
inline constexpr int PyBUF_WRITABLE = 0x0001;
inline constexpr int PyBUF_FORMAT = 0x0004;
inline constexpr int PyBUF_STRIDES = 0x0010 | 0x0008;
inline constexpr int PyBUF_C_CONTIGUOUS = 0x0020 | PyBUF_STRIDES;
#endif
