// Operations of a communicator on memory of a device, over a transport of the host: what a rank sends is
// copied there in the stream `comm` and waited for, what it receives is copied back once it has arrived, and
// the compute stream waits for that copy. The copies are planned: they are part of the message.
#pragma once
#include <functional>

#include "comm/communicator.h"
#include "tensor/buffer.h"

namespace ingot {

/// Whether the tensor has memory that messages of the host cannot take.
inline bool needs_staging(const Tensor& t) {
  return t.data != nullptr && !t.on_host() && t.device != DeviceKind::null;
}

/// Copies in the stream `comm`, once the compute stream is done with what it was asked for, and waits.
class StagedOut {
 public:
  explicit StagedOut(const Tensor& from);
  /// On the host: the copy, or `from` itself where it is there.
  const Tensor& tensor() const { return tensor_; }

 private:
  Buffer memory_;
  Tensor tensor_;
};

/// Memory of the host in which values for a tensor arrive.
class StagedIn {
 public:
  /// `host`: where they arrive; undefined: in memory of its own.
  explicit StagedIn(const Tensor& to, const Tensor& host = {});
  const Tensor& tensor() const { return tensor_; }
  /// They have arrived: copies them in the stream `comm`, for which the compute stream waits.
  void land();

 private:
  Tensor to_;
  Buffer memory_;
  Tensor tensor_;
  DeviceEvent free_;  ///< nothing that was asked for before uses the tensor's memory any more
};

/// Starts an operation by `start`, which gets tensors of the host and starts to send `in` and receive `out`.
/// Either may be undefined; one tensor for both is one for `start`, too.
Pending start_staged(const Tensor& in, const Tensor& out,
                     const std::function<Pending(const Tensor& in, const Tensor& out)>& start);

}  // namespace ingot
