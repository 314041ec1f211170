// The page of `ingot bench comm --html`: bandwidth and time of every collective over sizes, and the ranks by speed.
#pragma once
#include <string>

#include "comm/measure.h"

namespace ingot {

/// One HTML file that needs no network. `backend`: what was measured, in words.
std::string render_comm_page(const CommReport& report, const std::string& backend);

}  // namespace ingot
