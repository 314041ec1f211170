// Saves checkpoints: writes pieces of tensors and small JSON states to a folder that is complete or absent.
//
// save() checks that the pieces cover every tensor exactly, copies them into a buffer of its own, and
// returns; a thread writes the copy. The caller waits only for the check and the copy. A crash or a full disk
// can at worst leave a folder with the suffix ".tmp", which readers skip and the next writer deletes. The
// order on disk: make the temporary folder; write, sync and read back each file; write the manifest; sync the
// folder, rename it, sync its parent; replace `latest`; delete old checkpoints by the retention policy.
// docs/checkpoints.md has the format and the reasons.
//
// Several ranks save together: each writes its pieces to its own files. Rank 0 makes the folder, checks that
// the pieces of all ranks cover every tensor, and writes the manifest when all are done. The folder must be
// on a file system that all ranks see. Constructor, save() and wait() are then collective, and a failure on
// any rank is thrown on all ranks.
//
// One writer (or group of ranks) per folder, see base/folder_lock.h. Not thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/snapshot.h"
#include "comm/communicator.h"

namespace ingot {

/// Writes the values of a region to memory, dense and row-major.
using PieceSource = std::function<void(const Region& region, void* out)>;

/// One box of a tensor to save: in host memory (dense, row-major), or fetched while it is written. Pieces of
/// one name must agree in kind, dtype and global shape.
struct Piece {
  std::string name;
  TensorKind kind = TensorKind::weight;
  DType dtype = DType::f32;
  Shape global_shape;
  Region region;
  const void* data = nullptr;
  PieceSource source = {};  ///< used if data is nullptr; synchronous saves only; called from any thread

  /// The whole tensor as one piece.
  static Piece whole(std::string name, TensorKind kind, const Tensor& tensor);
};

struct SaveRequest {
  int64_t step = 0;
  std::vector<Piece> pieces = {};
  std::map<std::string, std::string> blobs = {};  ///< name -> JSON text: sampler, trainer, config, ...
  std::string protection = {};  ///< why retention must keep the checkpoint; empty: it may delete it
  int64_t keep_before = 0;      ///< see RetentionPolicy::keep_before
};

/// A save that was refused because a value is not finite: the state is lost, not the disk.
class NotFinite : public Error {
 public:
  using Error::Error;
};

struct CheckpointWriterOptions {
  int64_t max_file_bytes = int64_t{1} << 30;  ///< larger pieces are split along their first dimension
  bool asynchronous = true;  ///< false: no copy and no thread, save() returns when the checkpoint is on disk
  RetentionPolicy retention = {};
  std::string code_version = {};
  /// Every value is looked at while it is written; one that is not finite ends the save with NotFinite,
  /// before it counts and before an older checkpoint is deleted.
  bool require_finite = false;
  Communicator* group = nullptr;  ///< ranks that save together; nullptr: this rank alone
};

struct SaveReport {
  std::string path;  ///< of the finished checkpoint
  int64_t step = 0;
  int64_t bytes = 0;          ///< of tensor data
  double waited_seconds = 0;  ///< for the save before this one
  double copy_seconds = 0;    ///< for the snapshot; the caller lost this and waited_seconds
  double write_seconds = 0;   ///< from the first byte until the rename is durable
};

class CheckpointWriter {
 public:
  /// Creates the folder, deletes unfinished checkpoints, and finds the sequence number of the newest one.
  CheckpointWriter(FileSystem& fs, std::string folder, CheckpointWriterOptions options = {});
  /// Waits for a save in progress; logs its failure.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the save before this one. If that failed, throws its failure and does nothing else; another
  /// call tries again. Throws Error if the pieces leave holes or overlap, a blob is not JSON, or the disk has
  /// too little space.
  void save(const SaveRequest& request);
  /// Throws Error, with the numbers, where the disk cannot hold what a run of `saves` more saves like this
  /// has on it at once: the checkpoints that retention keeps, and the one that is being written. Has the
  /// memory of their copies ready, so that the first save stops its caller no longer than others. Collective.
  void prepare(const SaveRequest& request, int64_t saves);
  /// Waits for the save in progress and returns the report of the last finished one. Throws the failure of
  /// the last save, once. With several ranks the save becomes a checkpoint here, so call it soon after all
  /// ranks have written().
  std::optional<SaveReport> wait();

  bool busy() const { return busy_; }
  /// Whether this rank's files of a save are on disk, so that wait() would complete the checkpoint.
  bool written() const { return started_ && !busy_; }
  /// Bytes written so far of the save in progress. Any thread may call it.
  int64_t bytes_written() const { return bytes_written_; }

 private:
  struct Shard;
  struct Plan;
  bool alone() const { return options_.group == nullptr || options_.group->size() == 1; }
  bool leads() const { return alone() || options_.group->rank() == 0; }
  std::shared_ptr<Plan> agree_on_plan(const SaveRequest& request);
  Plan make_plan(const SaveRequest& request) const;
  void assign_files(Plan& plan, const std::vector<Piece>& pieces) const;
  std::string choose_name(int64_t step);
  uint64_t bytes_on_disk(const std::vector<std::string>& manifests) const;
  static int64_t snapshot_bytes(const Plan& plan);
  void take_snapshot(Plan& plan);
  void start_writing(const std::shared_ptr<Plan>& plan, const SaveReport& report);
  void run(Plan& plan, SaveReport report) noexcept;
  void write_files(Plan& plan);
  void write_shard(const std::string& folder, Shard& shard, Manifest& manifest);
  void agree_to_commit(const Plan& plan);
  std::string commit(const std::vector<std::string>& manifests);
  void delete_old(const Plan& plan);
  void remove_unfinished();
  void join();

  FileSystem& fs_;
  std::string folder_;
  CheckpointWriterOptions options_;
  int64_t sequence_ = 0;           ///< on rank 0: of the last save that began
  std::string layout_;             ///< Plan::layout of the save before; empty: none
  uint64_t disk_bytes_ = 0;        ///< on rank 0: bytes_on_disk() of that layout
  std::string name_;               ///< of the checkpoint in progress
  std::shared_ptr<Plan> started_;  ///< with several ranks: the save in progress, until wait()
  Snapshot snapshot_;
  std::thread thread_;
  std::atomic<bool> busy_ = false;
  std::atomic<int64_t> bytes_written_ = 0;
  std::exception_ptr failure_;          ///< written by thread_, read after join()
  std::optional<SaveReport> finished_;  ///< written by thread_, read after join()
};

}  // namespace ingot
