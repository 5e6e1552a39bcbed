// Python functions as bodies of traced functions: their arguments are Exprs, what they close over becomes constants.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "arrays.h"
#include "gil.h"

namespace onestep::python {

/// Copies of the arrays that a Python function closes over, and where they were copied from.
struct CopiedData {
  struct Entry {
    const double* from;
    Array copy;
  };
  std::vector<Entry> entries;
};

/// While it lives, arrays that meet an Expr on this thread become constants by copies that are made once: an array that is
/// used twice is one constant, and one that has not changed since the last call (its bytes are compared) is that of the last
/// call. NumPy cannot tell whether an array will be changed later, and a Solution needs its data as they were.
class Tracing {
 public:
  /// `last` is what the last call used; it becomes what this one uses. `kept` is the list of what the solver needs. Made and
  /// destroyed with the GIL held.
  Tracing(std::shared_ptr<const CopiedData>& last, nb::list kept);
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
  ~Tracing();

  static Tracing* current();
  Array data(const Buffer& buffer);
  /// For a solve inside what is traced: the list of what its solver needs.
  void keep(nb::handle kept_inside);
  /// What a result of this call needs.
  nb::list needed() const;

 private:
  std::shared_ptr<const CopiedData>& last_;
  std::shared_ptr<const CopiedData> known_;
  CopiedData used_;
  nb::list kept_, inside_;
  Tracing* outer_;
};

/// While one is used on a thread, Python functions are what they were when they were first traced with it: what they close
/// over is asked for once.
class Frozen {
 public:
  /// What is frozen is kept alive by this list, which outlives it.
  explicit Frozen(nb::handle kept) : kept_(kept) {}
  class Use {
   public:
    explicit Use(Frozen* frozen);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();

   private:
    Frozen* outer_;
  };
  static Frozen* current();
  using Call = std::function<std::vector<Expr>(std::span<const Expr>)>;
  /// The results of `call`, which calls this function; of its first call with arguments of these shapes. Called without the
  /// GIL.
  std::vector<Expr> results(nb::handle function, std::span<const Expr> arguments, const Call& call);

 private:
  struct Entry {
    nb::handle function;
    std::vector<Shape> shapes;
    Function traced;
  };
  nb::handle kept_;
  std::recursive_mutex mutex_;
  std::vector<Entry> entries_;
};

/// A number, an array or an expression as an expression. Throws TracingError for anything else.
Expr expr_of(nb::handle object);
/// The same, or nothing for an object of a type that may know what to do with expressions itself.
std::optional<Expr> operand_of(nb::handle object);
/// A list or tuple of them.
std::vector<Expr> exprs_of(nb::handle object);

/// Calls a Python function with expressions. Takes the GIL. `function` is borrowed: somebody keeps it alive.
nb::object call_python(nb::handle function, std::span<const Expr> arguments);
/// How many arguments without defaults a Python function takes.
std::size_t arguments_of(nb::handle function);
/// The function, or one that was traced before, as a body of the library, which borrows it.
detail::Body body_of(nb::handle function);

}  // namespace onestep::python
