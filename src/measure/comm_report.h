// The report of `ingot bench comm`: bandwidth and time of every collective by size, messages between pairs of
// ranks, and the ranks by speed.
#pragma once
#include <string>

#include "comm/measure.h"

namespace ingot {

// `backend`: what was measured, in words, e.g. "4 processes, Open MPI".

std::string to_text(const CommReport& report, const std::string& backend);
/// {"format": 1, "backend", "collectives": [{"collective", "ranks", "bytes", "seconds",
/// "bus_bytes_per_second"}], "buckets": [{"ranks", "bytes"}], "messages": [{"from", "to", "bytes",
/// "seconds"}], "pairs": [{"from", "to", "latency_seconds", "bytes_per_second", "alpha_seconds",
/// "beta_bytes_per_second", "residual", "largest_residual", "from_bytes", "to_bytes"}], "speeds": [{"rank",
/// "bytes_per_second"}]}. docs/parallel.md says what they mean.
std::string to_json(const CommReport& report, const std::string& backend);
/// One HTML file with plots that needs no network.
std::string render_comm_page(const CommReport& report, const std::string& backend);

}  // namespace ingot
