# Runs COMPILER with FLAGS on FILE without producing anything. A FILE whose first line is `// error: REGEX` must be refused, and the first
# line that names an error must match it (compilers word theirs differently: `a|b`); any other file must be accepted without a
# warning.
set(ENV{LC_ALL} C)  # gcc's messages with plain quotes
list(TRANSFORM INCLUDE PREPEND -I)
execute_process(COMMAND ${COMPILER} ${FLAGS} -fsyntax-only ${INCLUDE} -isystem ${SYSTEM_INCLUDE} ${FILE}
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
file(STRINGS ${FILE} first_line LIMIT_COUNT 1)
if(first_line MATCHES "^// error: (.+)$")
  set(expected "${CMAKE_MATCH_1}")
  if(status EQUAL 0)
    message(FATAL_ERROR "${FILE} compiles; it must be refused with \"${expected}\"")
  endif()
  string(REGEX MATCH "error: [^\n]*" first_error "${output}")
  if(NOT first_error MATCHES "${expected}")
    message(FATAL_ERROR "${FILE} is refused, but the first error is not \"${expected}\":\n${output}")
  endif()
elseif(NOT status EQUAL 0)
  message(FATAL_ERROR "${FILE} must compile:\n${output}")
endif()
