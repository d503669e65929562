/* For NVRTC, which has no system headers and knows memcpy by itself. */
