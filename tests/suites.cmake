# Writes OUTPUT, which tells ctest the test suites of PROGRAM: PREFIX.SUITE is one process that runs all tests of a suite. A
# process for each test would spend as much time on starting under the sanitizers as on testing.
execute_process(COMMAND ${EMULATOR} ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE list COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[A-Za-z][A-Za-z0-9_/]*\\." suites "${list}")
set(tests "")
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "[\n.]" "" suite "${suite}")
  # One BLAS thread: the threads are ours, and those of OpenBLAS spin while they wait, which slows parallel tests.
  string(APPEND tests "add_test(${PREFIX}.${suite} ${EMULATOR} ${PROGRAM} --gtest_filter=${suite}.*)\n"
                      "set_tests_properties(${PREFIX}.${suite} PROPERTIES ENVIRONMENT OPENBLAS_NUM_THREADS=1)\n")
endforeach()
file(WRITE ${OUTPUT} "${tests}")
