// See sim_device.h.
#include "device/sim/sim_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/round.h"
#include "device/memory/pages.h"

namespace ingot {
namespace {

/// What some addresses hold, as messages say it.
struct MemoryName {
  std::atomic<const char*> begin = nullptr;
  std::atomic<int64_t> bytes = 0;
  std::atomic<const char*> owner = nullptr, slot = nullptr;
};

/// The newest names, for the signal handler, which may not lock. A step of a small model has fewer tensors.
constexpr size_t kNames = 1 << 14;
std::array<MemoryName, kNames> memory_names;
std::atomic<size_t> names_given = 0;

/// All addresses of the device lie in one range, so that the handler knows them.
constexpr int64_t kAddresses = int64_t{1} << 40;
std::atomic<const char*> first_address = nullptr;

/// Text in a buffer of fixed size: a signal handler may not allocate.
class Text {
 public:
  Text& operator<<(const char* text) {
    while (*text != 0 && size_ < text_.size()) text_[size_++] = *text++;
    return *this;
  }
  Text& operator<<(int64_t number) {
    std::array<char, 24> digits{};
    size_t n = digits.size() - 1;
    do {
      digits[--n] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << digits.data() + n;
  }
  void write() const { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_.data(), size_); }

 private:
  std::array<char, 512> text_{};
  size_t size_ = 0;
};

/// Only calls that are safe in a signal handler.
void end_on_host_access(int number, siginfo_t* info, void*) {
  const auto* at = static_cast<const char*>(info->si_addr);
  const char* const first = first_address;
  ::signal(number, SIG_DFL);  // the instruction runs again, and the signal ends the program
  if (first == nullptr || at < first || at >= first + kAddresses) return;
  Text text;
  text << "error: host code touched memory of device 'sim'";
  const size_t given = names_given;
  for (size_t back = 1; back <= given && back <= kNames; ++back) {
    const MemoryName& name = memory_names[(given - back) % kNames];
    const char* const begin = name.begin;
    if (at < begin || at >= begin + name.bytes) continue;
    text << ": byte " << at - begin << " of " << name.bytes << ", '" << name.slot << "' of op '" << name.owner
         << "'";
    break;
  }
  text << "\nhint: copy the tensor to the host with HostCopy (tensor/host_copy.h)\n";
  text.write();
}

class SimDevice final : public Device {
 public:
  SimDevice() {
    first_ = static_cast<char*>(reserve_addresses(kAddresses, false));
    next_ = first_;
    first_address = first_;
    struct sigaction action {};
    action.sa_sigaction = end_on_host_access;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
  }
  DeviceKind kind() const override { return DeviceKind::sim; }

  void* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* const memory = system_allocate(bytes);
    std::memset(memory, 0xff, static_cast<size_t>(bytes));
    const std::lock_guard lock(mutex_);
    // A page between blocks belongs to none of them. Addresses are not used twice: what reads a block that
    // was released is found, too.
    const int64_t size = round_up(bytes, kPage) + kPage;
    INGOT_CHECK(next_ + size <= first_ + kAddresses, "the simulated device has no addresses left");
    char* const address = next_;
    next_ += size;
    blocks_.emplace(address, Memory{static_cast<char*>(memory), bytes});
    ++counters_.allocations;
    return address;
  }

  void release(void* address, int64_t bytes) override {
    if (address == nullptr) return;
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(static_cast<char*>(address));
    INGOT_CHECK(at != blocks_.end() && at->second.bytes == bytes, "no block of {} bytes", bytes);
    system_release(at->second.data, bytes);
    blocks_.erase(at);
  }

  void upload(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    std::memcpy(memory_at(to, bytes), from, static_cast<size_t>(bytes));
    ++counters_.uploads;
    counters_.uploaded_bytes += bytes;
  }

  void download(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    std::memcpy(to, memory_at(from, bytes), static_cast<size_t>(bytes));
    ++counters_.downloads;
    counters_.downloaded_bytes += bytes;
  }

  void name_memory(const void* memory, int64_t bytes, const char* owner, const char* slot) override {
    const std::lock_guard lock(mutex_);
    MemoryName& name = memory_names[names_given % kNames];
    name.begin = static_cast<const char*>(memory);
    name.bytes = bytes;
    name.owner = owner;
    name.slot = slot;
    ++names_given;
  }

 private:
  static constexpr int64_t kPage = 4096;
  struct Memory {
    char* data;
    int64_t bytes;
  };

  /// Where the bytes behind an address of the device are.
  char* memory_at(const void* address, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const char*>(address);
    auto block = blocks_.upper_bound(const_cast<char*>(at));
    INGOT_CHECK(block != blocks_.begin(), "an address of another device, or one that was released");
    --block;
    const int64_t offset = at - block->first;
    INGOT_CHECK(offset + bytes <= block->second.bytes,
                "{} bytes at {} of a block of {}, or one that was released", bytes, offset,
                block->second.bytes);
    return block->second.data + offset;
  }

  std::mutex mutex_;
  char *first_ = nullptr, *next_ = nullptr;
  std::map<char*, Memory> blocks_;  ///< by address
};

}  // namespace

Device& sim_device() {
  static SimDevice& device = *new SimDevice;  // never destroyed: others may release memory later
  return device;
}

}  // namespace ingot
