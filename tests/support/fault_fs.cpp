// See fault_fs.h.
#include "support/fault_fs.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/philox.h"

namespace ingot::test {

struct FaultFs::Node {
  bool folder = false;
  std::string data;   // of a file
  size_t synced = 0;  // bytes of it that are durable
  std::map<std::string, NodePtr> entries, durable_entries;
  /// Entry changes since the last sync_folder; each is kept or lost as a whole. A null node removes the name.
  std::vector<std::vector<std::pair<std::string, NodePtr>>> pending;

  void change(std::vector<std::pair<std::string, NodePtr>> step) {
    for (const auto& [name, node] : step) {
      if (node)
        entries[name] = node;
      else
        entries.erase(name);
    }
    pending.push_back(std::move(step));
  }
};

namespace {

constexpr const char* kNames[kFileOps] = {"create", "write",       "sync",          "close", "rename",
                                          "remove", "sync folder", "create folder", "read"};

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    if (slash > at && path.substr(at, slash - at) != ".") parts.push_back(path.substr(at, slash - at));
    at = slash + 1;
  }
  return parts;
}

std::string name_of(const std::string& path) {
  const auto parts = parts_of(path);
  return parts.empty() ? "" : parts.back();
}

std::string parent_of(const std::string& path) {
  return path.substr(0, path.size() - name_of(path).size());
}

class Bytes final : public MappedFile {
 public:
  explicit Bytes(std::string data) : data_(std::move(data)) {}
  std::span<const std::byte> bytes() const override {
    return {reinterpret_cast<const std::byte*>(data_.data()), data_.size()};
  }

 private:
  std::string data_;
};

}  // namespace

/// One call: faults are checked before it, the power is cut after it.
class FaultFs::Operation {
 public:
  Operation(FaultFs& fs, FileOp op, const std::string& path) : fs_(fs), lock_(fs.mutex_), op_(op) {
    fs.enter(op, path);
  }
  void done() { fs_.leave(op_); }

 private:
  FaultFs& fs_;
  std::lock_guard<std::mutex> lock_;
  FileOp op_;
};

class FaultFs::Writable final : public WritableFile {
 public:
  Writable(FaultFs& fs, std::string path, NodePtr node)
      : fs_(fs), path_(std::move(path)), node_(std::move(node)) {}
  void append(const void* data, size_t size) override {
    try {
      Operation operation(fs_, FileOp::append, path_);
      node_->data.append(static_cast<const char*>(data), size);
      operation.done();
    } catch (const Error&) {
      node_->data.append(static_cast<const char*>(data), size / 2);
      throw;
    }
  }
  void sync() override {
    Operation operation(fs_, FileOp::sync, path_);
    node_->synced = node_->data.size();
    operation.done();
  }
  void close() override {
    Operation operation(fs_, FileOp::close, path_);
    operation.done();
  }

 private:
  FaultFs& fs_;
  std::string path_;
  NodePtr node_;
};

FaultFs::FaultFs() : root_(std::make_shared<Node>()) {
  root_->folder = true;
}
FaultFs::~FaultFs() = default;

void FaultFs::enter(FileOp op, const std::string& path) {
  if (off_) throw PowerCut();
  Fault& fault = faults_[static_cast<int>(op)];
  ++calls_[static_cast<int>(op)];
  if (fault.after < 0 || fault.after-- > 0) return;
  if (fault.lasting) fault.after = 0;
  throw Error(fmt::format("cannot {} '{}': {}", kNames[static_cast<int>(op)], path, fault.reason));
}

void FaultFs::leave(FileOp op) {
  if (op == FileOp::read || operations_++ != cut_after_) return;
  off_ = true;
  throw PowerCut();
}

void FaultFs::fail_call(FileOp op, int64_t n, std::string reason, bool lasting) {
  const std::lock_guard lock(mutex_);
  faults_[static_cast<int>(op)] = {n, std::move(reason), lasting};
}

void FaultFs::cut_power_after(int64_t n) {
  const std::lock_guard lock(mutex_);
  operations_ = 0;
  cut_after_ = n;
}

void FaultFs::heal() {
  const std::lock_guard lock(mutex_);
  for (Fault& fault : faults_) fault = {};
  std::fill(std::begin(calls_), std::end(calls_), 0);
  operations_ = 0;
  cut_after_ = -1;
}

void FaultFs::restart(uint64_t seed) {
  heal();
  const std::lock_guard lock(mutex_);
  off_ = false;
  const Random random(seed, RandomPurpose::test);
  uint64_t draw = 0;
  const std::function<void(Node&)> agree = [&](Node& node) {
    if (!node.folder) {
      const size_t unsynced = node.data.size() - node.synced;
      node.data.resize(node.synced + random.below(draw++, unsynced + 1));
      const size_t kept = node.data.size() - node.synced;
      if (kept > 0 && random.below(draw++, 3) == 0)
        std::fill(node.data.begin() + static_cast<ptrdiff_t>(node.synced + random.below(draw++, kept)),
                  node.data.end(), '\0');
      node.synced = node.data.size();
      return;
    }
    const bool journal = random.below(draw++, 2) == 0;
    const uint64_t prefix = random.below(draw++, node.pending.size() + 1);
    node.entries = node.durable_entries;
    for (size_t i = 0; i < node.pending.size(); ++i) {
      if (journal ? i >= prefix : random.below(draw++, 2) == 0) continue;
      for (const auto& [name, child] : node.pending[i]) {
        if (child)
          node.entries[name] = child;
        else
          node.entries.erase(name);
      }
    }
    node.pending.clear();
    node.durable_entries = node.entries;
    for (const auto& [name, child] : node.entries) agree(*child);
  };
  agree(*root_);
}

int64_t FaultFs::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

int64_t FaultFs::calls(FileOp op) const {
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<int>(op)];
}

FaultFs::NodePtr FaultFs::find(const std::string& path) const {
  NodePtr node = root_;
  for (const std::string& part : parts_of(path)) {
    const auto it = node->entries.find(part);
    if (it == node->entries.end()) return nullptr;
    node = it->second;
  }
  return node;
}

FaultFs::NodePtr FaultFs::need(const std::string& path, const char* operation) const {
  NodePtr node = find(path);
  if (!node) fail("cannot {} '{}': No such file or directory", operation, path);
  return node;
}

void FaultFs::flip_byte(const std::string& path, uint64_t at) {
  const std::lock_guard lock(mutex_);
  char& byte = need(path, "change")->data.at(at);
  byte = static_cast<char>(byte ^ 0x10);
}

void FaultFs::truncate(const std::string& path, uint64_t size) {
  const std::lock_guard lock(mutex_);
  need(path, "change")->data.resize(size);
}

std::unique_ptr<WritableFile> FaultFs::create(const std::string& path) {
  Operation operation(*this, FileOp::create, path);
  const NodePtr folder = need(parent_of(path), "create a file in"), node = std::make_shared<Node>();
  folder->change({{name_of(path), node}});
  operation.done();
  return std::make_unique<Writable>(*this, path, node);
}

std::unique_ptr<WritableFile> FaultFs::open_append(const std::string& path) {
  Operation operation(*this, FileOp::create, path);
  NodePtr node = find(path);
  if (!node) {
    node = std::make_shared<Node>();
    need(parent_of(path), "create a file in")->change({{name_of(path), node}});
  }
  operation.done();
  return std::make_unique<Writable>(*this, path, node);
}

std::unique_ptr<MappedFile> FaultFs::map(const std::string& path) {
  return std::make_unique<Bytes>(read(path));
}

std::string FaultFs::read(const std::string& path) {
  Operation operation(*this, FileOp::read, path);
  const NodePtr node = need(path, "open");
  if (node->folder) fail("cannot read '{}': it is a folder", path);
  return node->data;
}

bool FaultFs::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (off_) throw PowerCut();
  return find(path) != nullptr;
}

uint64_t FaultFs::size(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (off_) throw PowerCut();
  return need(path, "stat")->data.size();
}

std::vector<std::string> FaultFs::list(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  if (off_) throw PowerCut();
  std::vector<std::string> names;
  for (const auto& [name, node] : need(folder, "list")->entries) names.push_back(name);
  return names;
}

void FaultFs::create_folders(const std::string& path) {
  Operation operation(*this, FileOp::create_folders, path);
  NodePtr node = root_;
  for (const std::string& part : parts_of(path)) {
    if (!node->entries.contains(part)) {
      const auto child = std::make_shared<Node>();
      child->folder = true;
      node->change({{part, child}});
    }
    node = node->entries[part];
  }
  operation.done();
}

void FaultFs::rename(const std::string& from, const std::string& to) {
  Operation operation(*this, FileOp::rename, from);
  const NodePtr node = need(from, "rename"), target = find(to);
  INGOT_CHECK(parent_of(from) == parent_of(to), "renames across folders are not modelled: '{}', '{}'", from,
              to);
  if (target && (target->folder != node->folder || !target->entries.empty()))
    fail("cannot rename '{}': '{}' is in the way", from, to);
  find(parent_of(from))->change({{name_of(from), nullptr}, {name_of(to), node}});
  operation.done();
}

void FaultFs::unlink(Node& folder, const std::string& name) {
  const NodePtr node = folder.entries.at(name);
  while (!node->entries.empty()) unlink(*node, std::string(node->entries.begin()->first));
  folder.change({{name, nullptr}});
}

void FaultFs::remove_all(const std::string& path) {
  if (removal_seconds_ > 0 && exists(path))
    std::this_thread::sleep_for(std::chrono::duration<double>(removal_seconds_));
  Operation operation(*this, FileOp::remove, path);
  if (find(path)) unlink(*find(parent_of(path)), name_of(path));
  operation.done();
}

void FaultFs::sync_folder(const std::string& path) {
  Operation operation(*this, FileOp::sync_folder, path);
  const NodePtr node = need(path, "open folder");
  node->durable_entries = node->entries;
  node->pending.clear();
  operation.done();
}

}  // namespace ingot::test
