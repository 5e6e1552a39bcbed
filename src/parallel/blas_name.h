// What the functions of BLAS and LAPACK are called in the library that is linked. Some builds put a prefix before all names,
// so that several can be loaded into one process: scipy-openblas32, which the Python wheel carries, has scipy_dgemm_. Behind
// the declaration of each such function stands ONESTEP_BLAS_NAME of its name; the code that calls it uses the plain one.
#pragma once

#ifdef ONESTEP_BLAS_PREFIX
#define ONESTEP_BLAS_TEXT_OF(text) #text
#define ONESTEP_BLAS_TEXT(text) ONESTEP_BLAS_TEXT_OF(text)
#define ONESTEP_BLAS_NAME(name) __asm__(ONESTEP_BLAS_TEXT(ONESTEP_BLAS_PREFIX) #name)
#else
#define ONESTEP_BLAS_NAME(name)
#endif
