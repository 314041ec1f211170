// See mapped_file.h.
#include "base/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace ingot {
namespace {

/// Where a file is mapped. The handler of the signal walks the list of all while other threads map and unmap,
/// so a place is never freed, only used again.
struct Place {
  std::atomic<const std::byte*> begin{nullptr};  // nullptr: free
  std::atomic<const std::byte*> end{nullptr};
  std::atomic<const char*> path{nullptr};
  Place* next = nullptr;
};
std::atomic<Place*> places{nullptr};
std::mutex places_mutex;  // of those who change the list

Place* take_place() {
  for (Place* p = places; p != nullptr; p = p->next)
    if (p->begin == nullptr) return p;
  auto* made = new Place;
  made->next = places;
  places = made;
  return made;
}

void show(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

/// Only calls that are safe in a signal handler.
void end_on_bus_error(int number, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const Place* p = places; p != nullptr; p = p->next) {
    const std::byte* begin = p->begin;
    if (begin == nullptr || at < begin || at >= p->end) continue;
    show("error: '");
    show(p->path);
    show(
        "' could not be read to its end: it became shorter while it was in use, or the disk failed\n"
        "hint: restore the file, and start the same command again\n");
    ::_exit(1);
  }
  ::signal(number, SIG_DFL);  // not of a file: the instruction runs again, and the signal ends the program
}

void catch_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = end_on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

class PosixMappedFile final : public MappedFile {
 public:
  PosixMappedFile(const std::byte* data, size_t size, const std::string& path)
      : data_(data), size_(size), path_(path) {
    if (data_ == nullptr) return;
    static std::once_flag once;
    std::call_once(once, catch_bus_errors);
    const std::lock_guard lock(places_mutex);
    place_ = take_place();
    place_->path = path_.c_str();
    place_->end = data_ + size_;
    place_->begin = data_;
  }
  ~PosixMappedFile() override {
    if (data_ == nullptr) return;
    {
      const std::lock_guard lock(places_mutex);
      place_->begin = nullptr;
    }
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
  std::span<const std::byte> bytes() const override { return {data_, size_}; }
  void done_with(std::span<const std::byte> part) const override {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(part.data()) + part.size();
    if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }

 private:
  const std::byte* data_;
  size_t size_;
  std::string path_;
  Place* place_ = nullptr;
};

}  // namespace

std::unique_ptr<MappedFile> map_file(int fd, size_t size, const std::string& path) {
  if (size == 0) return std::make_unique<PosixMappedFile>(nullptr, 0, path);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  return std::make_unique<PosixMappedFile>(static_cast<const std::byte*>(data), size, path);
}

}  // namespace ingot
