/* Readers at full speed against one writer: is any answer made of two states? */
#ifndef NPU_TESTBED_RACE_H
#define NPU_TESTBED_RACE_H
#include "dcmi.h"
#include "image_layout.h"

#define MAX_READERS 256

typedef int hbm_getter(int, int, struct dcmi_hbm_info *);

/* Number of answers that are torn or failed, of `reads` by `readers` threads. */
long race(unsigned char *image, hbm_getter *getter, int readers, long reads);

#endif
