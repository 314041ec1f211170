// See sim_names.h.
#include "device/sim/sim_names.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace ingot {
namespace {

struct MemoryName {
  std::atomic<const char*> begin = nullptr;
  std::atomic<int64_t> bytes = 0;
  std::atomic<const char*> owner = nullptr, slot = nullptr;
};

/// The newest names, for the signal handler, which may not lock. A step of a small model has fewer tensors.
constexpr size_t kNames = 1 << 15;
std::array<MemoryName, kNames> memory_names;
std::atomic<size_t> names_given = 0;

/// Host memory whose values have moved to the device; a name is null where they have not. Beyond this many
/// buffers at once, accesses to some are not named.
constexpr size_t kMoved = 256;
std::array<MemoryName, kMoved> moved_memory;

/// All addresses of the device, for the handler.
std::atomic<const char*> first_address = nullptr;
std::atomic<int64_t> address_bytes = 0;

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
  std::string str() const { return {text_.data(), size_}; }

 private:
  std::array<char, 512> text_{};
  size_t size_ = 0;
};

/// Only what is safe in a signal handler.
void describe(const char* at, Text& text) {
  const size_t given = names_given;
  for (size_t back = 1; back <= given && back <= kNames; ++back) {
    const MemoryName& name = memory_names[(given - back) % kNames];
    const char* const begin = name.begin;
    if (at < begin || at >= begin + name.bytes) continue;
    text << "byte " << at - begin << " of " << name.bytes;
    if (const char* const owner = name.owner; owner != nullptr)
      text << ", '" << name.slot << "' of op '" << owner << "'";
    else
      text << " of category '" << name.slot << "'";
    return;
  }
  text << "memory without a name";
}

void end_on_host_access(int number, siginfo_t* info, void*) {
  const auto* at = static_cast<const char*>(info->si_addr);
  const char* const first = first_address;
  ::signal(number, SIG_DFL);  // the instruction runs again, and the signal ends the program
  for (const MemoryName& name : moved_memory) {
    const char* const slot = name.slot;
    const char* const begin = name.begin;
    if (slot == nullptr || at < begin || at >= begin + name.bytes) continue;
    Text text;
    text << "error: host code touched memory whose values are on device 'sim': byte " << at - begin << " of "
         << name.bytes << " of category '" << slot
         << "'\nhint: ask for the tensor again (WeightSet::master), or use Buffer::data()\n";
    return text.write();
  }
  if (first == nullptr || at < first || at >= first + address_bytes) return;
  Text text;
  text << "error: host code touched memory of device 'sim': ";
  describe(at, text);
  text << "\nhint: copy the tensor to the host with HostCopy (tensor/host_copy.h)\n";
  text.write();
}

}  // namespace

void name_sim_memory(const void* memory, int64_t bytes, const char* owner, const char* slot) {
  MemoryName& name = memory_names[names_given % kNames];
  name.begin = static_cast<const char*>(memory);
  name.bytes = bytes;
  name.owner = owner;
  name.slot = slot;
  ++names_given;
}

void name_moved_memory(const void* host, int64_t bytes, const char* what) {
  const auto* const begin = static_cast<const char*>(host);
  MemoryName* place = nullptr;
  for (MemoryName& name : moved_memory)
    if (name.slot == nullptr ? place == nullptr && what != nullptr : name.begin == begin) place = &name;
  if (place == nullptr) return;
  place->slot = nullptr;  // first: the handler must not see half a name
  place->begin = begin;
  place->bytes = bytes;
  place->slot = what;
}

std::string describe_sim_memory(const void* at) {
  Text text;
  describe(static_cast<const char*>(at), text);
  return text.str();
}

void watch_sim_addresses(const void* first, int64_t bytes) {
  address_bytes = bytes;
  first_address = static_cast<const char*>(first);
  struct sigaction action {};
  action.sa_sigaction = end_on_host_access;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace ingot
