# SOURCE, compiled by COMPILER with the table of this folder instead of the library's, must be refused, and the first error must
# name the forgotten row: with the library's own table there is none.
set(ENV{LC_ALL} C)
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Werror=switch -DONESTEP_TABLE="${ROOT}/include/onestep/operations.def"
                        -I${CMAKE_CURRENT_LIST_DIR} -I${ROOT}/include -I${ROOT}/src ${ROOT}/${SOURCE}
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX MATCH "error: [^\n]*" first_error "${output}")
if(status EQUAL 0 OR NOT first_error MATCHES "forgotten")
  message(FATAL_ERROR "${SOURCE} does not name the row it does not know:\n${output}")
endif()
