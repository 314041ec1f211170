// See failure_report.h.
#include "report/failure_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/foreign_json.h"

namespace ingot {
namespace {

constexpr int64_t kFailureFormat = 1;
constexpr size_t kMostSuspects = 4096;

}  // namespace

std::string FailureReport::json(int64_t start) const {
  nlohmann::ordered_json j{{"format", kFailureFormat},
                           {"start", start},
                           {"kind", name_of(kind)},
                           {"rank", rank},
                           {"host", node},
                           {"step", step},
                           {"trouble_step", trouble_step},
                           {"message", message},
                           {"hint", hint},
                           {"time", wall_seconds()}};
  for (const Suspect& s : suspects) j["suspects"].push_back({{"rank", s.rank}, {"host", s.node}});
  if (!suspects.empty()) j["copies"] = copies;
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::optional<FailureReport> FailureReport::parse(const std::string& text, int64_t start) {
  const nlohmann::json j = object_in(text);
  if (whole(j, "format", 0) != kFailureFormat || whole(j, "start", 0) != start) return std::nullopt;
  FailureReport f{.node = text_in(j, "host"), .message = text_in(j, "message"), .hint = text_in(j, "hint")};
  for (const auto& kind : enum_names(FailureKind{}))
    if (text_in(j, "kind") == kind.name) f.kind = kind.value;
  f.rank = whole(j, "rank", -1);
  f.step = whole(j, "step", -1);
  f.trouble_step = std::max<int64_t>(0, whole(j, "trouble_step", 0));
  f.copies = std::max<int64_t>(0, whole(j, "copies", 0));
  const auto suspects = j.find("suspects");
  if (f.kind == FailureKind::mismatch && suspects != j.end() && suspects->is_array())
    for (const nlohmann::json& s : *suspects)
      if (s.is_object() && f.suspects.size() < kMostSuspects)
        f.suspects.push_back({text_in(s, "host"), whole(s, "rank", 0)});
  return f;
}

}  // namespace ingot
