// Reads a file that is not there, and is told so by an exception from the library.
#include <onestep/data.h>

#include <iostream>

int main() {
  try {
    (void)onestep::read_csv("not there.csv");
  } catch (const onestep::FileError& e) {
    std::cout << e.what() << '\n';
    return 0;
  }
  return 1;
}
