// A file for measurements of a disk: it has no name where the file system can do that, and is gone with the object.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace ingot {

class ScratchFile {
 public:
  /// In `folder`. `direct`: past the page cache (O_DIRECT), where the file system has that. Throws Error where the folder
  /// cannot hold a file.
  ScratchFile(const std::string& folder, bool direct);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  bool direct() const { return direct_; }
  /// Whole transfers; thread-safe. For a direct file `data`, `bytes` and `offset` are multiples of kAlignment. Throw Error.
  void write(const void* data, int64_t bytes, int64_t offset) const;
  void read(void* data, int64_t bytes, int64_t offset) const;
  /// Returns when what was written is on the disk.
  void sync() const;
  /// Takes what is on the disk out of the page cache, as far as the system does.
  void forget(int64_t bytes) const;

  static constexpr int64_t kAlignment = 4096;

 private:
  std::string folder_;
  int fd_ = -1;
  bool direct_ = false;
};

/// Memory for transfers, aligned and filled with bytes that do not compress.
std::shared_ptr<std::byte[]> transfer_buffer(int64_t bytes);

}  // namespace ingot
