/* For NVRTC, which has no system headers and knows bool by itself. */
