// A temporary file for disk measurements: unnamed where the file system supports that, and removed with the
// object.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace ingot {

class ScratchFile {
 public:
  /// `direct`: bypass the page cache (O_DIRECT) if the file system can. Throws Error if no file can be made
  /// in `folder`.
  ScratchFile(const std::string& folder, bool direct);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  bool direct() const { return direct_; }
  /// Transfer all bytes or throw Error; thread-safe. For a direct file all arguments are multiples of
  /// kAlignment.
  void write(const void* data, int64_t bytes, int64_t offset) const;
  void read(void* data, int64_t bytes, int64_t offset) const;
  /// Returns when all written bytes are durable.
  void sync() const;
  /// Asks the system to drop the file from the page cache.
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
