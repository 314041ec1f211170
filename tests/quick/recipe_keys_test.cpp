// Every key of a recipe is either fixed ("key!") or free where a run resumes. A new key fails here until it is listed, so that
// whoever adds it decides: a key is fixed where another value would not continue the run that the checkpoint holds.
#include <gtest/gtest.h>

#include "train/recipe.h"

namespace ingot {
namespace {

/// A line per section, "phases.*: name steps! ...". What lies in a fixed section is fixed and not listed.
struct Keys : FieldVisitor<Keys> {
  std::string path, line, inner;

  template <class T>
  void fixed(const char* name, T&, const char*) {
    line += std::string(" ") + name + "!";
  }
  template <class T>
  void operator()(const char* name, T& field, const char*) {
    line += std::string(" ") + name;
    const std::string here = path.empty() ? name : path + "." + name;
    if constexpr (config_detail::is_vector<T>) {
      if constexpr (config_detail::Struct<typename T::value_type>) {
        typename T::value_type element{};
        inner += keys_of(here + ".*", element);
      }
    } else if constexpr (config_detail::Struct<T>) {
      inner += keys_of(here, field);
    }
  }
  template <class T>
  static std::string keys_of(const std::string& path, T& section) {
    Keys keys;
    keys.path = path;
    section.visit(keys);
    return path + ":" + keys.line + "\n" + keys.inner;
  }
};

TEST(RecipeKeys, AreFixedOrFreeAtResume) {
  Recipe recipe;
  EXPECT_EQ(Keys::keys_of("", recipe), "");
}

std::string message_of(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  const test::TempDir folder;
  test::write_text(folder / "recipe.toml", toml);
  try {
    load_recipe(folder / "recipe.toml", overrides);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace
}  // namespace ingot
