// Plain structs of the library as classes of Python: fields that can be read, repr, comparison and pickling from one list.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "arrays.h"

namespace onestep::python {

template <class T> class Record {
 public:
  Record(nb::module_& m, const char* name, const char* about) : type(m, name, about), fields_(std::make_shared<Fields>()) {
    type.def("__getstate__", [fields = fields_](const T& self) { return state(*fields, self); });
    type.def("__setstate__", [fields = fields_](T& self, const nb::tuple& values) {
      T* made = new (&self) T{};
      for (std::size_t i = 0; i < fields->size(); ++i) (*fields)[i].write(*made, values[i]);
    });
    type.def(
        "__eq__",
        [fields = fields_](const T& self, nb::handle other) -> nb::object {
          const T* same = nullptr;
          if (!nb::try_cast<const T*>(other, same, false) || same == nullptr)
            return nb::borrow(nb::handle(Py_NotImplemented));
          return nb::cast(
              std::all_of(fields->begin(), fields->end(), [&](const Field& f) { return f.is_same(self, *same); }));
        },
        nb::sig("def __eq__(self, other: object, /) -> bool"));
    type.attr("__hash__") = nb::none();
    type.def("__repr__", [fields = fields_, name = std::string(name)](const T& self) {
      std::string text;
      for (const Field& f : *fields) {
        if (!text.empty()) text += ", ";
        text += f.name + "=" + nb::cast<std::string>(nb::repr(f.read(self)));
      }
      return name + "(" + text + ")";
    });
  }

  template <class Member> Record& field(const char* name, Member T::*member, const char* about) {
    type.def_ro(name, member, about);
    fields_->push_back({name, [member](const T& self) { return nb::cast(self.*member); },
                        [member](T& self, nb::handle value) { self.*member = nb::cast<Member>(value); },
                        [member](const T& a, const T& b) { return is_same(a.*member, b.*member); }});
    return *this;
  }

  /// That of all fields, for records that are options: equal ones have the same.
  Record& hashable() {
    type.def("__hash__", [fields = fields_](const T& self) {
      nb::list values;
      values.append(nb::type<T>());
      for (const Field& f : *fields) {
        const nb::object value = f.read(self);
        values.append(value.equal(value) ? value : nb::none());  // NaN is the same as another NaN
      }
      return nb::hash(nb::tuple(values));
    });
    return *this;
  }

  nb::class_<T> type;

 private:
  struct Field {
    std::string name;
    std::function<nb::object(const T&)> read;
    std::function<void(T&, nb::handle)> write;
    std::function<bool(const T&, const T&)> is_same;
  };
  using Fields = std::vector<Field>;
  // A number that is not known is NaN, and does not make a record differ from its copy.
  template <class Value> static bool is_same(const Value& a, const Value& b) {
    if constexpr (std::is_floating_point_v<Value>)
      return a == b || (std::isnan(a) && std::isnan(b));
    else
      return a == b;
  }
  template <class Value> static bool is_same(const std::vector<Value>& a, const std::vector<Value>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Value& x, const Value& y) { return is_same(x, y); });
  }
  static nb::tuple state(const Fields& fields, const T& self) {
    nb::list values;
    for (const Field& f : fields) values.append(f.read(self));
    return nb::tuple(values);
  }
  std::shared_ptr<Fields> fields_;
};

// Members of results as what can be pickled, and back. Enums are numbers.
inline nb::object pickled(const Array& array) { return numpy_of(array); }
inline nb::object pickled(const Parts& parts) { return numpy_tuple(parts); }
inline nb::object pickled(const std::vector<Parts>& all) {
  nb::list each;
  for (const Parts& parts : all) each.append(numpy_tuple(parts));
  return each;
}
template <class Value> nb::object pickled(const Value& value) {
  if constexpr (std::is_enum_v<Value>)
    return nb::int_(static_cast<int>(value));
  else
    return nb::cast(value);
}
inline void unpickle(nb::handle from, Array& array) { array = array_of(from); }
inline void unpickle(nb::handle from, Parts& parts) { parts = parts_of(from); }
inline void unpickle(nb::handle from, std::vector<Parts>& all) {
  for (const nb::handle one : from) all.push_back(parts_of(one));
}
template <class Value> void unpickle(nb::handle from, Value& value) {
  if constexpr (std::is_enum_v<Value>)
    value = static_cast<Value>(nb::cast<int>(from));
  else
    value = nb::cast<Value>(from);
}
template <auto... members> struct Pickling {
  template <class T> static nb::tuple state(const T& self) { return nb::make_tuple(pickled(self.*members)...); }
  template <class T> static void restore(T& self, const nb::tuple& values) {
    std::size_t i = 0;
    (unpickle(values[i++], self.*members), ...);
  }
};

/// What __reduce__ of a class does whose objects cannot be pickled: Python's TypeError that says why, and what can.
template <class T> auto cannot_be_pickled(const char* why) {
  return [why](const T&) -> nb::object { throw nb::type_error(why); };
}

}  // namespace onestep::python
