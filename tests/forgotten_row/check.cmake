# SOURCE, compiled by COMPILER with the table of this folder instead of the library's, must be refused with an error that names
# the forgotten row; with the library's own table it must be accepted, so that it is refused for that reason alone.
set(ENV{LC_ALL} C)
function(compile status output)
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Wswitch -Werror=switch ${ARGN} -I${ROOT}/include -I${ROOT}/src ${ROOT}/${SOURCE}
                  RESULT_VARIABLE its_status OUTPUT_VARIABLE its_output ERROR_VARIABLE its_output)
  set(${status} "${its_status}" PARENT_SCOPE)
  set(${output} "${its_output}" PARENT_SCOPE)
endfunction()
compile(status output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${SOURCE} does not compile:\n${output}")
endif()
compile(status output "-DONESTEP_TABLE=\"${ROOT}/include/onestep/operations.def\"" -I${CMAKE_CURRENT_LIST_DIR})
string(REGEX MATCH "error: [^\n]*forgotten[^\n]*" named "${output}")
if(status EQUAL 0 OR named STREQUAL "")
  message(FATAL_ERROR "${SOURCE} does not name the row it does not know:\n${output}")
endif()
