// A file system in memory that breaks on command: it fails the n-th call of a kind, or cuts the power after
// the n-th operation and then shows what a disk could hold. What survives a cut:
//   - a file's bytes up to its last sync; of those appended after it, a part chosen by the seed, possibly
//   with a hole
//     of zeros where blocks were not written;
//   - a folder's entries as of its last sync_folder; of the changes after it (a file created, a rename, a
//   removal), a
//     subset chosen by the seed: a prefix, as a journal would keep, or any subset. A rename is kept or lost
//     as a whole.
// Syncing a file does not make its name durable: that takes sync_folder, as POSIX has it.
// Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace ingot::test {

/// Thrown by the call that the power did not survive and by every call after it. Not an Error: code that
/// cleans up after errors must not be able to.
class PowerCut : public std::runtime_error {
 public:
  PowerCut() : std::runtime_error("the power is cut") {}
};

enum class FileOp { create, append, sync, close, rename, remove, sync_folder, create_folders, read };
constexpr int kFileOps = 9;

class FaultFs final : public FileSystem {
 public:
  FaultFs();
  ~FaultFs() override;

  /// The n-th call (from 0, counted from now) of `op` throws an Error with this reason, and every later one
  /// too if `lasting`. A failing append writes half of its bytes first.
  void fail_call(FileOp op, int64_t n, std::string reason, bool lasting = false);
  /// After n more operations (reads are not counted), the power is cut: operation n takes place and throws
  /// PowerCut.
  void cut_power_after(int64_t n);
  /// Faults are forgotten; operations() starts from 0.
  void heal();
  /// The machine starts again, with what the disk held: see above. Also heals.
  void restart(uint64_t seed);
  int64_t operations() const;
  int64_t calls(FileOp op) const;
  void set_free_bytes(uint64_t bytes) { free_bytes_ = bytes; }
  /// Each removal of what exists takes so long.
  void set_removal_seconds(double seconds) { removal_seconds_ = seconds; }
  /// Changes one byte of a file in place.
  void flip_byte(const std::string& path, uint64_t at);
  void truncate(const std::string& path, uint64_t size);

  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<WritableFile> open_append(const std::string& path) override;
  std::unique_ptr<MappedFile> map(const std::string& path) override;
  std::string read(const std::string& path) override;
  bool exists(const std::string& path) override;
  uint64_t size(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) override;
  void create_folders(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_all(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  uint64_t free_bytes(const std::string& path) override { return free_bytes_; }

 private:
  struct Node;
  class Writable;
  using NodePtr = std::shared_ptr<Node>;
  class Operation;
  void enter(FileOp op, const std::string& path);
  void leave(FileOp op);
  NodePtr find(const std::string& path) const;
  NodePtr need(const std::string& path, const char* operation) const;
  void unlink(Node& folder, const std::string& name);

  mutable std::mutex mutex_;
  NodePtr root_;
  struct Fault {
    int64_t after = -1;
    std::string reason;
    bool lasting = false;
  };
  Fault faults_[kFileOps];
  int64_t calls_[kFileOps] = {};
  int64_t operations_ = 0;
  int64_t cut_after_ = -1;
  bool off_ = false;
  uint64_t free_bytes_ = uint64_t{1} << 40;
  double removal_seconds_ = 0;
};

}  // namespace ingot::test
