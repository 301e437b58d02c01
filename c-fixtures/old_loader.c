/* Library to be preloaded after ours. With it glibc looks as before 2.35, without the function by
 * which unwinders find a module. */

int _dl_find_object(void *address, void *result);

int _dl_find_object(void *address, void *result)
{
    (void)address;
    (void)result;
    return -1;
}
