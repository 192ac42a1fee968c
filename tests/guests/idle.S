# A guest of one sector that does nothing: for measuring what others do meanwhile.
#
# It says `up` on the serial port and sleeps. The power button switches it off.
#
#   as --32 idle.S -o idle.o && ld -m elf_i386 -Ttext 0x7c00 --oformat binary idle.o -o idle

    .code16
    .globl _start
    .set PORT, 0x3f8            # first serial port
    .set STATUS, 0x600          # ACPI's PM1 event block, as SeaBIOS places it
    .set ENABLE, 0x602
    .set CONTROL, 0x604

_start:
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %ss
    movw $0x7000, %sp
    sti

    movw $STATUS, %dx           # forget an old press, then listen for new ones
    movw $0x0100, %ax
    outw %ax, %dx
    movw $ENABLE, %dx
    outw %ax, %dx

    movw $PORT, %dx
    movb $'u', %al
    outb %al, %dx
    movb $'p', %al
    outb %al, %dx

rest:
    movw $STATUS, %dx
    inw %dx, %ax
    testb $1, %ah
    jnz off
    hlt                         # the BIOS' clock wakes it, 18 times a second
    jmp rest

off:
    movw $CONTROL, %dx
    movw $0x2000, %ax
    outw %ax, %dx
    hlt

    .org 510
    .word 0xaa55
