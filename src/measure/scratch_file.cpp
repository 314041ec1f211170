// See scratch_file.h.
#include "measure/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/philox.h"

namespace ingot {
namespace {

int open_unnamed(const std::string& folder, int flags) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)) return fd;
  std::string name = folder + "/.ingot-measure-XXXXXX";  // a file system without unnamed files
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  const int reason = errno;
  if (named >= 0) ::unlink(name.c_str());
  errno = reason;
  return named;
}

}  // namespace

ScratchFile::ScratchFile(const std::string& folder, bool direct) : folder_(folder) {
  if (direct) {
    fd_ = open_unnamed(folder, O_DIRECT);
    // Some file systems accept the flag and refuse the transfers.
    const auto probe = transfer_buffer(kAlignment);
    direct_ = fd_ >= 0 && ::pwrite(fd_, probe.get(), kAlignment, 0) == kAlignment;
    if (!direct_ && fd_ >= 0) ::close(fd_), fd_ = -1;
  }
  if (fd_ < 0) fd_ = open_unnamed(folder, 0);
  if (fd_ < 0)
    throw Error(fmt::format("cannot make a file in '{}': {}", folder, std::strerror(errno)),
                "name a folder that can be written");
}

ScratchFile::~ScratchFile() {
  ::close(fd_);
}

void ScratchFile::write(const void* data, int64_t bytes, int64_t offset) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n = ::pwrite(fd_, static_cast<const char*>(data) + done, static_cast<size_t>(bytes - done),
                               offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(
          fmt::format("cannot write {} bytes to a file in '{}': {}", bytes, folder_, std::strerror(errno)),
          "free some space, or measure with a smaller file");
    done += n;
  }
}

void ScratchFile::read(void* data, int64_t bytes, int64_t offset) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pread(fd_, static_cast<char*>(data) + done, static_cast<size_t>(bytes - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(fmt::format("cannot read {} bytes of a file in '{}': {}", bytes, folder_,
                              n == 0 ? "it ends sooner" : std::strerror(errno)));
    done += n;
  }
}

void ScratchFile::sync() const {
  if (::fsync(fd_) != 0)
    throw Error(fmt::format("cannot sync a file in '{}': {}", folder_, std::strerror(errno)));
}

void ScratchFile::forget(int64_t bytes) const {
  ::posix_fadvise(fd_, 0, bytes, POSIX_FADV_DONTNEED);
}

std::shared_ptr<std::byte[]> transfer_buffer(int64_t bytes) {
  const int64_t whole =
      (bytes + ScratchFile::kAlignment - 1) / ScratchFile::kAlignment * ScratchFile::kAlignment;
  void* memory = std::aligned_alloc(ScratchFile::kAlignment, static_cast<size_t>(whole));
  if (memory == nullptr) throw std::bad_alloc();
  std::shared_ptr<std::byte[]> buffer(static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); });
  const Random random(7, RandomPurpose::test);
  for (int64_t i = 0; i < whole; i += 8) {
    const uint64_t bits = random.bits64(static_cast<uint64_t>(i / 8));
    std::memcpy(buffer.get() + i, &bits, 8);
  }
  return buffer;
}

}  // namespace ingot
