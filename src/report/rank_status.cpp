// See rank_status.h.
#include "report/rank_status.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/foreign_json.h"

namespace ingot {
namespace {

constexpr int64_t kStatusFormat = 1;

}  // namespace

std::string RankStatus::json(int64_t start) const {
  return nlohmann::ordered_json{{"format", kStatusFormat},
                                {"start", start},
                                {"rank", rank},
                                {"host", host},
                                {"pid", ::getpid()},
                                {"time", wall_seconds()},
                                {"start_step", start_step},
                                {"save_every", save_every},
                                {"step", step},
                                {"part", part},
                                {"silent_seconds", silent_seconds},
                                {"step_seconds", step_seconds},
                                {"busy_seconds", busy_seconds},
                                {"data_wait", data_wait},
                                {"saved_seconds", saved_seconds},
                                {"spike", spike}}
             .dump() +
         "\n";
}

std::optional<RankStatus> RankStatus::parse(const std::string& text, int64_t start) {
  const nlohmann::json j = object_in(text);
  if (whole(j, "format", 0) != kStatusFormat || whole(j, "start", 0) != start) return std::nullopt;
  return RankStatus{.rank = whole(j, "rank", 0),
                    .host = text_in(j, "host"),
                    .start_step = std::max<int64_t>(-1, whole(j, "start_step", -1)),
                    .save_every = std::max<int64_t>(0, whole(j, "save_every", 0)),
                    .step = std::max<int64_t>(-1, whole(j, "step", -1)),
                    .part = text_in(j, "part"),
                    .silent_seconds = std::max(0.0, real(j, "silent_seconds", 0)),
                    .step_seconds = std::max(0.0, real(j, "step_seconds", 0)),
                    .busy_seconds = std::max(0.0, real(j, "busy_seconds", 0)),
                    .data_wait = std::clamp(real(j, "data_wait", 0), 0.0, 1.0),
                    .saved_seconds = std::max(0.0, real(j, "saved_seconds", 0)),
                    .spike = j.value("spike", nlohmann::json()) == true};
}

}  // namespace ingot
