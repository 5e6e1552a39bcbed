# Fails unless EXAMPLE holds the README's first block (SNIPPET, less its #line) word for word: the page shows what
# `./run demo` runs.
file(READ ${SNIPPET} block)
string(REGEX REPLACE "^#line [^\n]*\n" "" block "${block}")
file(READ ${EXAMPLE} example)
string(FIND "${example}" "${block}" found)
if(found EQUAL -1)
  message(FATAL_ERROR "the first C++ block of README.md is not in ${EXAMPLE}:\n${block}")
endif()
