// A tensor's values where host code can read them. This and upload() are the only ways between the host and a
// device; the device counts them.
#pragma once
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace ingot {

/// Of a tensor on the host a view; else a copy, made by a stream of the calling thread once everything that
/// its compute stream was asked for before is over. An undefined tensor stays so. Not thread-safe.
class HostCopy {
 public:
  explicit HostCopy(const Tensor& from, StreamRole stream = StreamRole::compute);
  const Tensor& tensor() const { return tensor_; }
  template <class T>
  T* as() const {
    return tensor_.as<T>();
  }

 private:
  Buffer memory_;
  Tensor tensor_;
};

/// Copies the values of a dense host tensor to a tensor of the same bytes, wherever that is; to a device in
/// the stream.
void upload(const Tensor& from, const Tensor& to, StreamRole stream = StreamRole::compute);

/// Fills a dense tensor with zeros, wherever that is.
void set_zero(const Tensor& t);

}  // namespace ingot
