// Silent corruption found by equal bits: digests of what each rank computes and holds (digest_lines.h), a
// vote of the ranks that must hold the same, gradients that other ranks make again (share_replay.h), and a
// check of memory that nothing writes between two updates.
// [health] of the recipe says when; docs/guard.md what each check finds.
#pragma once
#include <memory>
#include <optional>

#include "train/digest_lines.h"
#include "train/engine.h"
#include "train/run_failure.h"
#include "train/share_replay.h"

namespace ingot {

class RunDigests {
 public:
  /// Called by all ranks. Rank 0 writes `folder`/digests.jsonl, of which the lines up to `step`, from which
  /// this start continues, stay. `engine` must outlive this.
  RunDigests(FileSystem& fs, TrainEngine& engine, const std::string& folder, int64_t step);

  /// What takes this rank's gradient of the step (StepOptions::own_digest); nullptr where it is not due.
  Digest* begin_step(int64_t step);
  /// After the step, by all ranks: gathers and records its digests, those of copies where they are due or
  /// `agrees`, and returns what all ranks have. Throws RunError on all ranks where copies differ, with their
  /// ranks and hosts and the last step at which all were equal.
  const StepDigests& end_step(int64_t step, bool agrees);

  /// health.replay_every: whether the gradients of the step are made twice, by ShareReplay.
  bool replays(int64_t step) const { return replay_.due(step); }
  /// Before the passes of the step.
  void begin_replay(const data::Batch& batch, const StepOptions& options) { replay_.make(batch, options); }
  /// Between passes and update, after `step` complete steps. Throws RunError on all ranks where they differ.
  void end_replay(int64_t step, const data::Batch& batch, const StepOptions& options);

  /// Compares the copies now, where that is on at all, and throws as end_step() does; after `step` complete
  /// steps. For ends that wrong bits may have caused.
  void require_agreement(int64_t step);

  /// health.check_at_rest, else nothing: takes the digests of weights and optimizer state after an update.
  void keep_rest();
  /// And compares them before the update that follows `step` complete steps. Throws RunError on all ranks.
  void check_rest(int64_t step);
  /// Something else than an update may write them next.
  void forget_rest() { rest_.reset(); }

  const DigestStart& start() const { return start_; }
  /// Makes all lines durable.
  void sync();

 private:
  struct Held {
    std::array<uint64_t, kCopyKinds> copies{};
    MomentDigests moments = {};
    bool operator==(const Held&) const = default;
  };
  Held digests_of_held();
  void gather(StepDigests& digests, bool with_gradients, bool with_copies);
  /// The ranks that hold what this one does, for each kind.
  std::array<Communicator*, kCopyKinds> copy_groups() const;
  void open(FileSystem& fs, const std::string& path);
  void write(const std::string& line);
  [[noreturn]] void stop_copies(const Disagreement& found, int64_t step) const;
  /// `then`: what the same command does, begun again.
  [[noreturn]] void stop(const Disagreement& found, const std::string& what, const std::string& then,
                         int64_t trouble_step) const;
  std::vector<Suspect> suspects(const std::vector<int>& ranks) const;

  TrainEngine& engine_;
  const HealthConfig config_;
  Communicator& world_;
  DigestStart start_;
  std::array<std::vector<int>, kCopyKinds> groups_;  ///< see find_disagreement()
  std::vector<std::string> hosts_;                   ///< by rank
  std::unique_ptr<WritableFile> file_;               ///< of rank 0
  Digest gradient_;
  StepDigests last_;
  std::optional<Held> rest_;
  int64_t agreed_;    ///< the last step at which all copies were equal
  int64_t repeated_;  ///< the last step at which all gradients were
  ShareReplay replay_;
};

}  // namespace ingot
