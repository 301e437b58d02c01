/* Symbols of glibc that g++'s library needs, so that `truth` can have its C++ part over musl. No
 * code throws there. */
char __libc_single_threaded;

int _dl_find_object(void *address, void *found)
{
    (void)address, (void)found;
    return -1;
}

unsigned arc4random(void)
{
    return 4;
}
