// Why a run ended: failure.json in its folder, which the rank that ends with an error writes, and programs
// that watch the run read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum.h"

namespace ingot {

enum class FailureKind : uint8_t {
  none,
  late,        ///< ranks waited for another one until their deadline
  lost,        ///< a rank ended without a word
  not_finite,  ///< loss, gradient or weights
  diverged,    ///< also a gradient that stays 0
  mismatch,    ///< ranks that must hold the same bits do not
  storage,     ///< a checkpoint or record could not be written or read
  memory,
  config,  ///< found before the first step
  bug,
  signal,  ///< asked to stop from outside
  unknown
};
constexpr auto enum_names(FailureKind) {
  return names_in_order<FailureKind>("none", "late", "lost", "not_finite", "diverged", "mismatch", "storage",
                                     "memory", "config", "bug", "signal", "unknown");
}

/// A node, or a rank on it, that may be broken.
struct Suspect {
  std::string node;
  int64_t rank = -1;  ///< on it; -1: the node
  bool operator==(const Suspect&) const = default;
};

struct FailureReport {
  FailureKind kind = FailureKind::unknown;
  std::string node, message, hint = {};
  int64_t rank = -1, step = -1;
  int64_t trouble_step = 0;            ///< of a divergence or mismatch: where it began; 0: unknown
  std::vector<Suspect> suspects = {};  ///< of a mismatch: whose bits differ; the first one is node and rank
  int64_t copies = 0;                  ///< of a mismatch: that were compared

  /// {"format": 1, "start", "kind", "rank", "host", "step", "trouble_step", "message", "hint", "time"}; of a
  /// mismatch also "suspects", a list of {"rank", "host"}, and "copies". `start`: the number that a guard
  /// gave this start of the run; 0: none.
  std::string json(int64_t start) const;
  /// Reads json(). Nothing where the text is none, or is of another start; it never throws.
  static std::optional<FailureReport> parse(const std::string& text, int64_t start);
};

}  // namespace ingot
