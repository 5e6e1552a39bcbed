# OpenBLAS as the package scipy-openblas32 of PyPI brings it, for the Python interpreter of the build: the target
# ScipyOpenBLAS::ScipyOpenBLAS. Its functions have a prefix (src/parallel/blas_name.h). It is for building wheels, into which
# auditwheel copies the library; nothing that is installed otherwise may depend on it.
find_package(Python 3.10 COMPONENTS Interpreter REQUIRED)
execute_process(COMMAND ${Python_EXECUTABLE} -c
                        "import scipy_openblas32 as s; print(s.get_lib_dir() + '/' + s.get_library(fullname=True), s.__version__, end='')"
                OUTPUT_VARIABLE found ERROR_QUIET)
if(found MATCHES "^(.*) ([0-9.]+)$")
  set(ScipyOpenBLAS_LIBRARY "${CMAKE_MATCH_1}")
  set(ScipyOpenBLAS_VERSION "${CMAKE_MATCH_2}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ScipyOpenBLAS REQUIRED_VARS ScipyOpenBLAS_LIBRARY VERSION_VAR ScipyOpenBLAS_VERSION
                                  REASON_FAILURE_MESSAGE "${Python_EXECUTABLE} -m pip install scipy-openblas32")
if(ScipyOpenBLAS_FOUND AND NOT TARGET ScipyOpenBLAS::ScipyOpenBLAS)
  add_library(ScipyOpenBLAS::ScipyOpenBLAS SHARED IMPORTED)
  set_target_properties(ScipyOpenBLAS::ScipyOpenBLAS PROPERTIES IMPORTED_LOCATION "${ScipyOpenBLAS_LIBRARY}"
                        INTERFACE_COMPILE_DEFINITIONS ONESTEP_BLAS_PREFIX=scipy_)
endif()
