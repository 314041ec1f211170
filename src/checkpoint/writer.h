// Saves checkpoints: pieces of tensors and small JSON states become a folder that is complete or absent.
//
// save() checks that the pieces cover every tensor exactly, copies them into a buffer of its own (the only
// time the caller waits for) and returns; a thread writes. What a crash or a full disk can do at any moment:
// leave a folder with the suffix ".tmp", which readers skip and the next writer deletes. Order on disk:
// temporary folder, each file written, synced and read back against its checksum, manifest last, folder
// synced, renamed, parent synced, `latest` replaced, old checkpoints deleted by the retention rule.
// docs/checkpoints.md has the format and the reasons.
//
// Several ranks save together: each writes its own pieces into files of its own; rank 0 makes the folder, checks that the
// pieces of all cover everything, and writes the manifest when all are done. The folder must be on a file system that all
// ranks see. Then constructor, save() and wait() are collective, and a failure on any rank is thrown on all.
//
// One writer (or group of ranks) per folder (see base/folder_lock.h); its methods are for one thread.
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
#include "comm/communicator.h"

namespace ingot {

/// Writes the values of a region, dense and row-major, to memory.
using PieceSource = std::function<void(const Region& region, void* out)>;

/// One box of a tensor: dense, row-major in host memory, or fetched when it is written. Pieces of one name must agree in kind,
/// dtype and global shape.
struct Piece {
  std::string name;
  TensorKind kind = TensorKind::weight;
  DType dtype = DType::f32;
  Shape global_shape;
  Region region;
  const void* data = nullptr;
  PieceSource source = {};  ///< where there is no data; synchronous saves only, from any thread

  /// A piece that is the whole tensor.
  static Piece whole(std::string name, TensorKind kind, const Tensor& tensor);
};

struct SaveRequest {
  int64_t step = 0;
  std::vector<Piece> pieces = {};
  std::map<std::string, std::string> blobs =
      {};                       ///< name -> JSON text: sampler, rng, schedule, router, trainer, config, ...
  std::string protection = {};  ///< non-empty: retention keeps it, and says why
};

struct CheckpointWriterOptions {
  int64_t max_file_bytes = int64_t{1} << 30;  ///< larger pieces are split along their first dimension
  bool asynchronous = true;  ///< false: no copy, no thread, save() returns when all is on disk
  RetentionPolicy retention = {};
  std::string code_version = {};
  Communicator* group = nullptr;  ///< ranks that save together; nullptr: one rank alone
};

struct SaveReport {
  std::string path;  ///< of the finished checkpoint
  int64_t step = 0;
  int64_t bytes = 0;          ///< of tensor data
  double waited_seconds = 0;  ///< for the save before this one
  double copy_seconds = 0;    ///< into the snapshot: with waited_seconds, all that the caller lost
  double write_seconds = 0;   ///< from the first byte to the durable rename
};

class CheckpointWriter {
 public:
  /// Creates the folder, deletes what crashes left there and numbers the next save after the newest one.
  CheckpointWriter(FileSystem& fs, std::string folder, CheckpointWriterOptions options = {});
  /// Waits for a save in flight; its failure is logged.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the save before this one and throws its failure, if it had one (then nothing of this request
  /// was done; the failure counts as reported, so calling again tries anew). Throws Error where the pieces
  /// leave holes or overlap, a blob is not JSON, or the disk has too little space.
  void save(const SaveRequest& request);
  /// Waits until nothing is in flight; throws the failure of the last save, once. The report of the last
  /// finished one. Several ranks: the save becomes a checkpoint here, so call it soon after all have written().
  std::optional<SaveReport> wait();

  bool busy() const { return busy_; }
  /// True where this rank's part of a save is on disk and wait() would make it a checkpoint.
  bool written() const { return started_ && !busy_; }
  /// Bytes written of the save in flight, for progress lines; any thread.
  int64_t bytes_written() const { return bytes_written_; }

 private:
  struct Shard;
  struct Plan;
  bool alone() const { return options_.group == nullptr || options_.group->size() == 1; }
  bool leads() const { return alone() || options_.group->rank() == 0; }
  Plan make_plan(const SaveRequest& request) const;
  std::string open_folder(const std::vector<std::string>& parts, int64_t step);
  std::string commit(const std::vector<std::string>& parts);
  void withdraw();
  void assign_files(Plan& plan, const std::vector<Piece>& pieces) const;
  void check_space(const Manifest& manifest) const;
  void take_snapshot(Plan& plan);
  void run(Plan& plan, SaveReport report) noexcept;
  void write(Plan& plan);
  void write_shard(const std::string& folder, Shard& shard, Manifest& manifest);
  void join();

  FileSystem& fs_;
  std::string folder_;
  CheckpointWriterOptions options_;
  int64_t sequence_ = 0;           ///< rank 0: of the last save tried
  std::string name_;               ///< of the save in flight
  std::shared_ptr<Plan> started_;  ///< several ranks: the save in flight, until wait()
  struct FreeBytes {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], FreeBytes> snapshot_;
  int64_t snapshot_bytes_ = 0;
  std::thread thread_;
  std::atomic<bool> busy_ = false;
  std::atomic<int64_t> bytes_written_ = 0;
  std::exception_ptr failure_;          ///< written by thread_, read after join
  std::optional<SaveReport> finished_;  ///< likewise
};

}  // namespace ingot
