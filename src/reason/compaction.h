// What of a rollout the next one sees (markovian_rsa.h), as a name in recipes and options.
#pragma once
#include <cstdint>

#include "base/enum.h"

namespace ingot::reason {

/// tail: the end of its reasoning. pacore: the end of its answer, nothing where it did not finish. hybrid:
/// the answer where it finished, else the tail.
enum class Compaction : uint8_t { tail, pacore, hybrid };
constexpr auto enum_names(Compaction) {
  return names_in_order<Compaction>("tail", "pacore", "hybrid");
}

}  // namespace ingot::reason
