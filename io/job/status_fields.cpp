#include "io/job/status_fields.h"

#include <nlohmann/json.hpp>
#include <type_traits>

namespace dt::io {
namespace {

using nlohmann::json;

template <class T>
concept Object = std::is_aggregate_v<T>;
template <class T>
concept Optional = requires(T value) {
  value.has_value();
};
template <class T>
concept List = requires(T value) {
  value.emplace_back();
};
template <class T>
concept Map = requires {
  typename T::mapped_type;
};

template <class T>
json json_of(const T& value) {
  if constexpr (Object<T>) {
    json::object_t out;
    for_each_field<T>([&](const auto& field) {
      if (!field.is_told || field.is_told(value))
        out.emplace(field.key, json_of(value.*field.member));
    });
    return out;
  } else if constexpr (Optional<T>) {
    return value ? json_of(*value) : json();
  } else if constexpr (List<T>) {
    json::array_t out;
    out.reserve(value.size());
    for (const auto& item : value) out.push_back(json_of(item));
    return out;
  } else {
    return value;
  }
}

/// Whether it is of that type.
template <class T>
bool read(const json& in, T& out) {
  if constexpr (Object<T>) {
    if (!in.is_object()) return false;
    for_each_field<T>([&](const auto& field) {
      if (const auto found = in.find(field.key); found != in.end()) read(*found, out.*field.member);
    });
  } else if constexpr (Optional<T>) {
    typename T::value_type value{};
    if (read(in, value)) out = std::move(value);
  } else if constexpr (List<T>) {
    if (!in.is_array()) return false;
    for (const json& item : in)
      if (typename T::value_type value{}; read(item, value)) out.push_back(std::move(value));
  } else if constexpr (Map<T>) {
    if (!in.is_object()) return false;
    for (const auto& [key, item] : in.items())
      if (typename T::mapped_type value{}; read(item, value)) out.emplace(key, value);
  } else {
    const bool fits = std::is_same_v<T, std::string> ? in.is_string()
                      : std::is_same_v<T, bool>      ? in.is_boolean()
                      : std::is_same_v<T, double>    ? in.is_number()
                                                     : in.is_number_unsigned();
    if (fits) in.get_to(out);
    return fits;
  }
  return true;
}

/// The fields of T, or of the objects in it.
template <class T>
void add_paths(std::vector<StatusPath>& out, const std::string& prefix) {
  if constexpr (Object<T>)
    for_each_field<T>([&]<class Member>(const StatusField<T, Member>& field) {
      const char* items = List<Member> ? "[]" : Map<Member> ? ".*" : "";
      out.push_back({prefix + field.key + items, field.text});
      add_paths<Member>(out, out.back().path + ".");
    });
  else if constexpr (Optional<T> || List<T>)
    add_paths<typename T::value_type>(out, prefix);
}

}  // namespace

std::string to_json(const Status& status) {
  return json_of(status).dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Status> status_from(std::string_view text) {
  Status status;
  if (!read(json::parse(text, nullptr, false), status))
    return fail(ErrorKind::kProtocol, "the supervisor's status is no JSON");
  return status;
}

std::vector<StatusPath> status_paths() {
  std::vector<StatusPath> out;
  add_paths<Status>(out, "");
  return out;
}

}  // namespace dt::io
