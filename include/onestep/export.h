// What a shared library exports: everything that is declared between these two, and nothing else. Classes that public
// headers only name are hidden.
#pragma once

#if defined(__GNUC__)
#define ONESTEP_EXPORT_BEGIN _Pragma("GCC visibility push(default)")
#define ONESTEP_EXPORT_END _Pragma("GCC visibility pop")
#define ONESTEP_HIDDEN __attribute__((visibility("hidden")))
#else
#define ONESTEP_EXPORT_BEGIN
#define ONESTEP_EXPORT_END
#define ONESTEP_HIDDEN
#endif
