#include "device/cuda/driver_scope.h"

namespace weft::cuda {

DriverScope::DriverScope(const Driver* driver, CUcontext context) noexcept : driver_(driver) {
  if (driver_ == nullptr) return;
  mode_changed_ = driver_->ThreadExchangeStreamCaptureMode.function(&previous_mode_) == CUDA_SUCCESS;
  if (driver_->CtxGetCurrent.function(&previous_) != CUDA_SUCCESS || previous_ == context) return;
  context_changed_ = driver_->CtxSetCurrent.function(context) == CUDA_SUCCESS;
}

DriverScope::~DriverScope() {
  if (context_changed_) driver_->CtxSetCurrent.function(previous_);
  if (mode_changed_) driver_->ThreadExchangeStreamCaptureMode.function(&previous_mode_);
}

}  // namespace weft::cuda
