// See enum.h.
#include "base/enum.h"

#include "base/error.h"

namespace ingot {

void refuse_enum(std::string_view text, std::string_view what, const std::string& names) {
  throw Error(fmt::format("'{}' is not a {}", text, what), "use one of: " + names);
}

}  // namespace ingot
