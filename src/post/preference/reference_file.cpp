// See reference_file.h.
#include "post/preference/reference_file.h"

#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/safetensors.h"

namespace ingot {
namespace {

struct FlatReference {
  std::vector<int64_t> keys, begins{0};
  std::vector<float> values;
  std::vector<double> mismatched;
};

FlatReference flat(const ReferenceLogprobs& r) {
  FlatReference f;
  for (const auto& [key, values] : r.documents) {
    f.keys.push_back(key.first);
    f.keys.push_back(key.second);
    f.values.insert(f.values.end(), values.begin(), values.end());
    f.begins.push_back(static_cast<int64_t>(f.values.size()));
  }
  f.mismatched = r.mismatched;
  return f;
}

template <class T>
std::vector<T> read_list(const SafetensorsFile& file, const char* name) {
  const SafetensorsEntry* e = file.find(name);
  if (e == nullptr || dtype_of_safetensors(e->dtype) != DTypeOf<T>::value)
    fail("'{}' holds no log-probabilities of a reference: '{}' is {}", file.path(), name,
         e == nullptr ? "missing" : e->str());
  const std::span<const std::byte> bytes = file.data(*e);
  std::vector<T> list(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
  return list;
}

}  // namespace

std::string reference_hash(const ReferenceLogprobs& r) {
  const FlatReference f = flat(r);
  std::string all;
  const auto add = [&](const auto& list) { all += hash128_hex(list.data(), list.size() * sizeof(list[0])); };
  add(f.keys), add(f.begins), add(f.values), add(f.mismatched);
  return hash128_hex(all.data(), all.size());
}

void write_reference(FileSystem& fs, const std::string& path, const ReferenceLogprobs& r) {
  const FlatReference f = flat(r);
  fs.create_folders(path.substr(0, path.rfind('/')));
  const auto item = [](const char* name, const auto& list, Shape shape) {
    using T = std::decay_t<decltype(list[0])>;
    return SafetensorsItem{name, DTypeOf<T>::value, shape, list.data()};
  };
  const auto n = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  const SafetensorsItem items[] = {
      item("keys", f.keys, {n(f.keys) / 2, 2}), item("begins", f.begins, {n(f.begins)}),
      item("values", f.values, {n(f.values)}), item("mismatched", f.mismatched, {n(f.mismatched)})};
  write_safetensors(fs, path, items);
}

ReferenceLogprobs read_reference(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path))
    throw Error(fmt::format("'{}' is gone: the log-probabilities of the phase's reference", path),
                "copy it back; or go back to the end of the phase before it, where they are made anew: "
                "ingot run RUN --from STEP");
  const SafetensorsFile file(fs, path);
  const auto keys = read_list<int64_t>(file, "keys"), begins = read_list<int64_t>(file, "begins");
  const auto values = read_list<float>(file, "values");
  ReferenceLogprobs r;
  r.mismatched = read_list<double>(file, "mismatched");
  const auto last = static_cast<int64_t>(values.size());
  if (keys.size() + 2 != begins.size() * 2 || begins.front() != 0 || begins.back() != last)
    fail("'{}' is damaged: {} keys, {} beginnings, {} values", path, keys.size(), begins.size(), last);
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    if (begins[i] > begins[i + 1] || begins[i + 1] > last) fail("'{}' is damaged at entry {}", path, i);
    r.documents[{static_cast<int32_t>(keys[2 * i]), keys[2 * i + 1]}] = {values.begin() + begins[i],
                                                                         values.begin() + begins[i + 1]};
  }
  return r;
}

}  // namespace ingot
