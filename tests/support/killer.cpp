// See kill_fs.h.
#include "support/kill_fs.h"

#include <signal.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "base/error.h"

namespace ingot::test {
namespace {

[[noreturn]] void die() {
  for (;;) ::kill(::getpid(), SIGKILL);
}

bool contains(const std::string& path, const char* part) {
  return path.find(part) != std::string::npos;
}

}  // namespace

KillPlan KillPlan::parse(const std::string& text) {
  KillPlan plan;
  std::istringstream(text) >> plan.event >> plan.number >> plan.microseconds;
  return plan;
}

class KillFs::File final : public WritableFile {
 public:
  File(KillFs& fs, std::string path, std::unique_ptr<WritableFile> file)
      : fs_(fs), path_(std::move(path)), file_(std::move(file)) {}
  void append(const void* data, size_t size) override {
    if (fs_.change(path_)) {
      file_->append(data, size / 2);
      die();
    }
    file_->append(data, size);
    if (contains(path_, "metrics.jsonl")) fs_.event("step", fs_.steps_);
  }
  void sync() override {
    if (fs_.change(path_)) die();
    file_->sync();
    if (contains(path_, "metrics.jsonl")) fs_.event("copy", fs_.copies_);
  }
  void close() override { file_->close(); }

 private:
  KillFs& fs_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

bool KillFs::change(const std::string& path) {
  if (contains(path, "/checkpoints")) return checkpoint_++ == plan_.number && plan_.event == "checkpoint";
  if (contains(path, "/data")) return data_++ == plan_.number && plan_.event == "data";
  return false;
}

void KillFs::event(const char* name, std::atomic<int64_t>& count) {
  if (count++ != plan_.number || plan_.event != name) return;
  std::thread([wait = plan_.microseconds] {
    std::this_thread::sleep_for(std::chrono::microseconds(wait));
    die();
  }).detach();
}

std::string KillFs::counts() const {
  return fmt::format("data {}\ncheckpoint {}\nstep {}\ncopy {}\n", data_.load(), checkpoint_.load(),
                     steps_.load(), copies_.load());
}

std::unique_ptr<WritableFile> KillFs::create(const std::string& path) {
  if (change(path)) die();
  return std::make_unique<File>(*this, path, real_file_system().create(path));
}
std::unique_ptr<WritableFile> KillFs::open_append(const std::string& path) {
  if (change(path)) die();
  return std::make_unique<File>(*this, path, real_file_system().open_append(path));
}
void KillFs::create_folders(const std::string& path) {
  if (change(path)) die();
  real_file_system().create_folders(path);
}
void KillFs::rename(const std::string& from, const std::string& to) {
  if (change(from)) die();
  real_file_system().rename(from, to);
}
void KillFs::remove_all(const std::string& path) {
  if (change(path)) die();
  real_file_system().remove_all(path);
}
void KillFs::sync_folder(const std::string& path) {
  if (change(path)) die();
  real_file_system().sync_folder(path);
}

}  // namespace ingot::test
