// A file system in memory that breaks on command: it fails the n-th call of a kind, or cuts the power after
// the n-th operation and then shows what a disk could hold. What survives a cut:
//   - A file's bytes up to its last sync. The seed chooses how many of the bytes appended after it survive,
//     possibly with a hole of zeros where blocks were not written.
//   - A folder's entries as of its last sync_folder. The seed chooses which later changes (a created file, a
//     rename, a removal) survive: a prefix, as a journal would keep, or any subset. A rename is kept or lost
//     as a whole.
// Syncing a file does not make its name durable: that takes sync_folder, as in POSIX.
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

/// Thrown by the call during which the power is cut and by every call after it. It is not an Error, so that
/// code which cleans up after errors cannot catch it.
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

  /// The n-th call (from 0, counted from now) of `op` throws an Error with this reason, and so does every
  /// later one if `lasting`. A failing append writes half of its bytes first.
  void fail_call(FileOp op, int64_t n, std::string reason, bool lasting = false);
  /// After n more operations (reads are not counted), the power is cut: operation n takes place and throws
  /// PowerCut.
  void cut_power_after(int64_t n);
  /// Forgets all faults; operations() starts from 0.
  void heal();
  /// Starts the machine again with what the disk held (see above). Also heals.
  void restart(uint64_t seed);
  int64_t operations() const;
  int64_t calls(FileOp op) const;
  void set_free_bytes(uint64_t bytes) { free_bytes_ = bytes; }
  /// Each removal of an existing file takes this long.
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
