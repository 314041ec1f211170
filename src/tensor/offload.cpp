// See offload.h.
#include "tensor/offload.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "base/round.h"
#include "tensor/buffer.h"

namespace ingot {
namespace {

constexpr int64_t kPage = 4096;

class FileOffloadStore final : public OffloadStore {
 public:
  explicit FileOffloadStore(const std::string& folder) : folder_(folder) {
    file_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file_ < 0) file_ = open_and_unlink();
    worker_ = std::jthread([this](std::stop_token stop) { work(stop); });
  }
  ~FileOffloadStore() override {
    {
      const std::scoped_lock lock(mutex_);
      worker_.request_stop();
    }
    wake_.notify_all();
    worker_.join();
    ::close(file_);
  }

  Handle write(const void* data, int64_t bytes) override {
    const std::scoped_lock lock(mutex_);
    const Handle handle = next_++;
    entries_[handle] = {extent_for(bytes), bytes, const_cast<void*>(data), Job::write};
    enqueue(handle);
    return handle;
  }

  void read(Handle handle, void* data) override {
    const std::scoped_lock lock(mutex_);
    Entry& e = entries_.at(handle);
    INGOT_CHECK(e.job == Job::none, "handle {} is being copied", handle);
    e.data = data;
    e.job = Job::read;
    enqueue(handle);
  }

  void wait(Handle handle) override {
    std::unique_lock lock(mutex_);
    const Entry& e = entries_.at(handle);
    done_.wait(lock, [&] { return e.job == Job::none; });
    if (e.error == 0) return;
    throw Error(fmt::format("offloaded activations: {} of {} in '{}' failed: {}",
                            e.failed == Job::write ? "writing" : "reading",
                            format_bytes(static_cast<double>(e.bytes)), folder_, std::strerror(e.error)),
                "free some space there, or set memory.offload_folder to another disk");
  }

  void forget(Handle handle) override {
    std::unique_lock lock(mutex_);
    const auto at = entries_.find(handle);
    done_.wait(lock, [&] { return at->second.job == Job::none; });
    free_[at->second.extent.capacity].push_back(at->second.extent.offset);
    entries_.erase(at);
  }

 private:
  enum class Job { none, write, read };
  /// A part of the file: whole pages.
  struct Extent {
    int64_t offset = 0, capacity = 0;
  };
  /// The copy of one buffer, and what is being done with it.
  struct Entry {
    Extent extent;
    int64_t bytes = 0;
    void* data = nullptr;
    Job job = Job::none, failed = Job::none;
    int error = 0;  ///< errno of `failed`
  };

  /// For file systems without unnamed files.
  int open_and_unlink() const {
    std::string name = folder_ + "/.offload-XXXXXX";
    const int file = ::mkostemp(name.data(), O_CLOEXEC);
    if (file < 0)
      throw Error(fmt::format("no file for offloaded activations can be made in '{}': {}", folder_,
                              std::strerror(errno)),
                  "set memory.offload_folder to a folder that can be written");
    ::unlink(name.c_str());
    return file;
  }

  /// Every micro-batch has the same sizes, so freed extents are kept by capacity.
  Extent extent_for(int64_t bytes) {
    const int64_t capacity = round_up(bytes, kPage);
    auto& offsets = free_[capacity];
    if (!offsets.empty()) {
      const int64_t offset = offsets.back();
      offsets.pop_back();
      return {offset, capacity};
    }
    end_ += capacity;
    return {end_ - capacity, capacity};
  }

  void enqueue(Handle handle) {
    jobs_.push_back(handle);
    wake_.notify_one();
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return !jobs_.empty() || stop.stop_requested(); });
      if (jobs_.empty()) return;
      Entry& e = entries_.at(jobs_.front());  // the reference stays valid: forget() waits for the job
      jobs_.pop_front();
      const Entry job = e;
      lock.unlock();
      const int error = run(job);
      lock.lock();
      if (error != 0) e.failed = e.job;
      e.error = error;
      e.job = Job::none;
      done_.notify_all();
    }
  }

  /// Copies; returns 0, or errno.
  int run(const Entry& e) const {
    const auto [offset, capacity] = e.extent;
    const bool writes = e.job == Job::write;
    for (int64_t done = 0; done < e.bytes;) {
      char* data = static_cast<char*>(e.data) + done;
      const auto size = static_cast<size_t>(e.bytes - done);
      const ssize_t n =
          writes ? ::pwrite(file_, data, size, offset + done) : ::pread(file_, data, size, offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 ? errno : EIO;
      done += n;
    }
    if (!writes) return 0;
    // Without this, the page cache would hold what was to leave memory.
    ::sync_file_range(file_, offset, capacity,
                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    ::posix_fadvise(file_, offset, capacity, POSIX_FADV_DONTNEED);
    return 0;
  }

  std::string folder_;
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::map<Handle, Entry> entries_;
  std::deque<Handle> jobs_;
  std::map<int64_t, std::vector<int64_t>> free_;  ///< offsets by capacity
  Handle next_ = 0;
  int64_t end_ = 0;
  std::jthread worker_;
};

/// A value goes to the host in the stream copy_out and on to the host's store when the next one goes, or is
/// waited for: its copy has the time of the kernels between the two. It comes back in the stream copy_in.
class DeviceOffloadStore final : public OffloadStore {
 public:
  DeviceOffloadStore(Device& device, std::unique_ptr<OffloadStore> host)
      : device_(device), host_(std::move(host)) {}
  ~DeviceOffloadStore() override {
    if (leaving_) device_.synchronize(leaving_->arrives);
  }

  Handle write(const void* data, int64_t bytes) override {
    hand_on();
    const Handle handle = next_++;
    Entry& e = entries_[handle];
    e.copy = Buffer(bytes);
    e.bytes = bytes;
    device_.wait(StreamRole::copy_out, device_.record(StreamRole::compute));
    device_.begin_download(e.copy.data(), data, bytes, StreamRole::copy_out);
    leaving_ = Leaving{handle, device_.record(StreamRole::copy_out)};
    return handle;
  }
  void read(Handle handle, void* data) override {
    Entry& e = entries_.at(handle);
    e.copy = Buffer(e.bytes);
    e.to = data;
    e.may_arrive = device_.record(StreamRole::compute);
    host_->read(e.stored, e.copy.data());
  }
  void wait(Handle handle) override {
    if (leaving_ && leaving_->handle == handle) hand_on();
    Entry& e = entries_.at(handle);
    host_->wait(e.stored);
    if (e.to != nullptr) {
      device_.wait(StreamRole::copy_in, e.may_arrive);
      device_.upload(e.to, e.copy.data(), e.bytes, StreamRole::copy_in);
      device_.wait(StreamRole::compute, device_.record(StreamRole::copy_in));
      e.to = nullptr;
    }
    e.copy = {};
  }
  void forget(Handle handle) override {
    if (leaving_ && leaving_->handle == handle) {  // nobody will read it
      try {
        device_.synchronize(leaving_->arrives);
      } catch (const Error&) {  // a device that failed copies no more, and says so of its next op
      }
      leaving_.reset();
    } else {
      host_->forget(entries_.at(handle).stored);
    }
    entries_.erase(handle);
  }

 private:
  struct Entry {
    Buffer copy;  ///< what the device or the host's store is copying
    int64_t bytes = 0;
    Handle stored = -1;      ///< of the host's store
    void* to = nullptr;      ///< on the device, where it is read back
    DeviceEvent may_arrive;  ///< nothing uses the memory at `to` any more that had it before
  };
  struct Leaving {
    Handle handle;
    DeviceEvent arrives;
  };

  /// Gives the host's store what is leaving the device.
  void hand_on() {
    if (!leaving_) return;
    device_.synchronize(leaving_->arrives);
    Entry& e = entries_.at(leaving_->handle);
    e.stored = host_->write(e.copy.data(), e.bytes);
    leaving_.reset();
  }

  Device& device_;
  std::map<Handle, Entry> entries_;
  std::optional<Leaving> leaving_;
  Handle next_ = 0;
  std::unique_ptr<OffloadStore> host_;  ///< last: it ends what it copies before that memory goes
};

}  // namespace

std::unique_ptr<OffloadStore> file_offload_store(const std::string& folder) {
  return std::make_unique<FileOffloadStore>(folder);
}

std::unique_ptr<OffloadStore> device_offload_store(Device& device, std::unique_ptr<OffloadStore> host) {
  return std::make_unique<DeviceOffloadStore>(device, std::move(host));
}

}  // namespace ingot
