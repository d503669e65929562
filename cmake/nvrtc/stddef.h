/* For NVRTC, which has no system headers and knows size_t and NULL by itself. */
