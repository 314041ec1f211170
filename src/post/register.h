// The kinds of phases of this folder. Programs that read recipes call this once, before any.
#pragma once

namespace ingot {

/// Adds the kinds "preference" and "rl" (train/phase_kind.h). Further calls do nothing. Not thread-safe.
void register_post();

}  // namespace ingot
