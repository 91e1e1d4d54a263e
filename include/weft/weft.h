#pragma once

// All of weft that a serving backend needs. Beside it: weft/kernels.h (shipped kernels), weft/safetensors.h,
// weft/triton.h and weft/nvrtc.h (kernels of others), weft/float16.h (f16 and bf16 on the host), weft/cuda.h and
// weft/dlpack.h (other people's streams, memory and tensors) and weft/spdlog.h.

#include <weft/buffer.h>
#include <weft/completion_source.h>
#include <weft/context.h>
#include <weft/error.h>
#include <weft/graph.h>
#include <weft/log.h>
#include <weft/model.h>
#include <weft/plan_cache.h>
#include <weft/prepared.h>
#include <weft/residency.h>
#include <weft/session.h>
