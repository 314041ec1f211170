// The environments that come with the program, without those that tests of the same process registered: their
// names end in "_test".
#pragma once
#include <string>
#include <vector>

#include "environments/environment.h"

namespace ingot::test {

inline std::vector<std::string> built_in_environments() {
  std::vector<std::string> names = environments::environment_names();
  std::erase_if(names, [](const std::string& name) { return name.ends_with("_test"); });
  return names;
}

}  // namespace ingot::test
