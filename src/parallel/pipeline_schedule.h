// Pipeline schedules as tables: what each rank does, in which order, made by pure functions of the shape. A
// table says nothing about time or memory; pipeline_simulator.h computes both, and pipeline.h runs the same
// tables.
//
// The model is divided into stages * chunks virtual stages; virtual stage s is chunk s / stages of rank s %
// stages, so a micro-batch passes every rank once per chunk. Sources: [1F1B] §2.2 (1f1b, interleaved),
// [Zero-Bubble] (ZB-H1), [DeepSeek-V3] §3.2.1 and [Megatron-MoE] (merged forward and backward).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum.h"

namespace ingot {

struct PipelineShape {
  int stages = 1;         ///< ranks of the pipeline
  int chunks = 1;         ///< virtual stages of a rank
  int micro_batches = 1;  ///< of a step
  int group = 0;          ///< micro-batches that pass a chunk before the next chunk begins; 0: `stages`

  int virtual_stages() const { return stages * chunks; }
  int virtual_stage(int rank, int chunk) const { return chunk * stages + rank; }
  int rank_of(int virtual_stage) const { return virtual_stage % stages; }
  /// Messages that a rank may have in flight to another, in one direction, before it waits. In a group of g
  /// micro-batches the last of p ranks is g - p ahead of the next chunk of the first.
  int messages_held() const { return chunks > 1 && group > stages ? group - stages + 1 : 1; }
  std::string str() const;  ///< "4 stages x 2 chunks, 8 micro-batches in groups of 4"
};

enum class WorkKind : uint8_t {
  forward,
  backward,         ///< both halves at once
  backward_input,   ///< the cotangents that the previous stage waits for
  backward_weight,  ///< weight gradients, at any time after
};
constexpr auto enum_names(WorkKind) {
  return names_in_order<WorkKind>("forward", "backward", "backward (inputs)", "backward (weights)");
}

struct Work {
  WorkKind kind = WorkKind::forward;
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const Work&) const = default;
  std::string str() const;  ///< "forward of micro-batch 3 in chunk 1"
};

/// One row of a rank's table.
struct ScheduleEntry {
  Work work;
  /// A backward that runs interleaved with `work`, a forward: while one waits for tokens from other ranks,
  /// the other computes.
  std::optional<Work> beside = {};
};

/// Called while a rank runs its table.
class ScheduleObserver {
 public:
  virtual ~ScheduleObserver() = default;
  /// The first of `entries` is about to run; the rest follow in this order.
  virtual void before_entry(std::span<const ScheduleEntry> entries) = 0;
  virtual void after_entry(const ScheduleEntry& entry) = 0;
};

enum class PipelineScheduleKind : uint8_t { one_forward_one_backward, interleaved, zero_bubble, merged };
constexpr auto enum_names(PipelineScheduleKind) {
  return names_in_order<PipelineScheduleKind>("1f1b", "interleaved", "zero_bubble", "merged");
}
/// "1f1b", "interleaved", "zero-bubble", "merged".

struct PipelineSchedule {
  PipelineShape shape;
  std::vector<std::vector<ScheduleEntry>> ranks;
  /// One line per rank: "F0 F1 B0 F2 ...", with several chunks "F0.1", merged pairs as "F2+B0".
  std::string str() const;
};

/// Rank r of p stages with v chunks, m micro-batches in groups of g:
/// - 1f1b: p - r - 1 warm-up forwards, then one forward and one backward alternate. One chunk only.
/// - interleaved: 2 (p - r - 1) + (v - 1) g warm-up forwards. With one chunk: as 1f1b.
/// - zero-bubble: 1f1b with the backward in halves; weight gradients begin r backwards late and fill idle
///   time (ZB-H1). One chunk only.
/// - merged: one more warm-up forward than interleaved, so that no pair of a forward and a backward is of the
///   same micro-batch and chunk; after the warm-up they run merged. Throws Error for shapes that a kind does
///   not have: sizes below 1; with several chunks, groups smaller than the number of stages, or a last group
///   smaller than it (ranks would wait for each other).
PipelineSchedule make_pipeline_schedule(PipelineScheduleKind kind, const PipelineShape& shape);

/// Forwards only, all micro-batches in one group: evaluation.
PipelineSchedule make_forward_schedule(PipelineShape shape);

/// The order in which micro-batches pass the chunks of a rank in forward: (micro-batch, chunk). In backward
/// chunks are reversed.
std::vector<std::pair<int, int>> chunk_order(const PipelineShape& shape);

}  // namespace ingot
